"""Converts failures of NATS into the task's error. No other module knows the messages of servers."""

from __future__ import annotations

import re
from typing import Any

from arclog.drivers.failure import Failure, refused
from arclog.model.outcome import ERROR_KINDS, error

__all__ = ["Failure", "broken", "denial", "kind_of", "of_api", "refused", "too_late"]

#: JetStream's error numbers with a specific error → kind, code and message.
_KNOWN: dict[int, tuple[str, str, str]] = {
    10014: ("not_found", "CONSUMER_NOT_FOUND", "there is no such consumer"),
    10037: ("not_found", "MESSAGE_NOT_FOUND", "there is no such message"),
    10039: ("config", "NO_JETSTREAM", "JetStream is not enabled for this account"),
    10047: ("limit", "NO_ROOM", "the server has no room left for JetStream"),
    10023: ("limit", "NO_ROOM", "the server has no room left for JetStream"),
    10054: ("limit", "MESSAGE_TOO_LARGE", "the message is too large for the stream"),
    10059: ("not_found", "STREAM_NOT_FOUND", "there is no such stream"),
    10060: ("conflict", "OTHER_STREAM", "another stream has this subject"),
    10071: ("conflict", "WRONG_REVISION", "it was changed meanwhile"),
    10164: ("conflict", "WRONG_REVISION", "it was changed meanwhile"),
    10076: ("config", "NO_JETSTREAM", "JetStream is not enabled on this server"),
    10077: ("limit", "STREAM_FULL", "the stream is full"),
    10122: ("limit", "STREAM_FULL", "the stream is full"),
    10166: ("config", "TTL_DISABLED", "the stream does not allow messages that expire (allow_msg_ttl)"),
}
_BY_STATUS = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 409: "conflict", 429: "rate_limit"}
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)
_SHOWN_CHARS = 200


def kind_of(status: int) -> str:
    """Return the error kind of a status. NATS uses those of HTTP."""
    return _BY_STATUS.get(status) or ("client_error" if 400 <= status < 500 else "server_error")


def of_api(answer: dict[str, Any], operation: str) -> Failure:
    """Return the failure for an error response of JetStream."""
    status, number = int(answer.get("code") or 0), int(answer.get("err_code") or 0)
    description = str(answer.get("description") or "")[:_SHOWN_CHARS]
    row = _KNOWN.get(number)
    if row is not None:
        kind, code, meaning = row
        return Failure(error(kind, f"{operation}: {meaning} ({description})", code=code))
    kind = kind_of(status)
    return Failure(
        error(kind, f"{operation}: the server reports: {description or status}", code=f"NATS_{number or status}")
    )


def broken(where: str) -> Failure:
    message = f"{where}: the connection was lost before the server answered, and it is unknown whether it performed the operation"
    return Failure(error("connection", message, code="CONNECTION_LOST"))


def denial(text: str) -> tuple[str, str] | None:
    """Return ('publish' or 'subscription', subject in lower case) if the server denied one, else None."""
    match = _DENIED.search(text)
    return None if match is None else (match[1].lower(), match[2].lower())


def too_late(operation: str, waited_s: float, by: str) -> Failure:
    return Failure(
        error("timeout", f"{operation}: no answer within {waited_s:g} s ({by})", retryable=ERROR_KINDS["timeout"])
    )
