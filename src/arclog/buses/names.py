"""Names on a bus: what of the settings, and of the pools, may stand in subjects, streams and channels."""

from __future__ import annotations

import re

from arclog.model.config.settings import Settings, row_of
from arclog.model.errors import SettingsError

_WORD = re.compile(r"[A-Za-z0-9_-]{1,32}")
_SUBJECT = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def name_of(settings: Settings, name: str) -> str:
    """A setting that becomes a word of a subject, or the name of a stream."""
    word = settings.text(name)
    if _WORD.fullmatch(word) is None:
        raise SettingsError(
            f"{row_of(name).variable}: {word!r} is not a valid name; letters, digits, _ and -, at most 32"
        )
    return word


def subject_of(settings: Settings, name: str) -> str:
    subject = settings.text(name)
    if _SUBJECT.fullmatch(subject) is None:
        raise SettingsError(
            f"{row_of(name).variable}: {subject!r} is not a subject; words of letters, digits, _ and -, separated by dots"
        )
    return subject


def token_of(pool: str) -> str:
    """A pool's name as one word of a subject."""
    return "".join(one if one.isascii() and (one.isalnum() or one in "_-") else f"={ord(one):x}=" for one in pool)
