"""PostgreSQL's errors as the store's. Every message says what, where and what to do; none has a password."""

from __future__ import annotations

import struct

import psycopg

from arclog.drivers.postgres.refusals import Meaning, refusal_of, state_of, text_of
from arclog.model.errors import ArclogError, InvariantBroken, RequestRejected, StoreUnavailable

_SETTING = "ARCLOG_STORE_URL"


def translated(error: BaseException, place: str) -> ArclogError:
    """What to raise instead of a driver's error."""
    if isinstance(error, ArclogError):
        return error
    if isinstance(error, UnicodeEncodeError | OverflowError | struct.error):
        return RequestRejected(f"{place} cannot take this value: {error}")
    if not isinstance(error, psycopg.Error):
        return InvariantBroken(f"{place}: unexpected {type(error).__name__}: {error}; nothing was written")
    refusal, text = refusal_of(error), text_of(error)
    if refusal.problem:
        remedy = refusal.remedy.format(address=_SETTING)
        return StoreUnavailable(f"{place}: {refusal.problem} ({text}); {remedy}")
    match refusal.meaning:
        case Meaning.VALUE:
            return RequestRejected(f"{place} cannot take this value: {text}")
        case Meaning.CONSTRAINT:
            return InvariantBroken(f"{place} refused a row that breaks one of its rules ({text}); nothing was written")
        case Meaning.AWAY | Meaning.TROUBLE:
            return StoreUnavailable(
                f"{place} cannot be reached ({text}); check that PostgreSQL runs there, and {_SETTING}"
            )
        case _:
            return InvariantBroken(f"{place}: unexpected {state_of(error)} {text}; nothing was written")
