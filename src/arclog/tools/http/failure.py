"""Converts failures of requests into the task's error. No other module knows the client's exceptions."""

from __future__ import annotations

import os
import ssl
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

from arclog.drivers.failure import Failure, shortened
from arclog.model.outcome import TaskError, error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arclog.drivers.http.client import Timeouts

#: Messages of h11, which the client uses.
_TOO_MANY_HEADERS = "Receive buffer too long"
_CUT = "without sending complete message body"


def bad_body(message: str) -> Failure:
    """Return the failure of a response that contradicts its headers. A retry would give the same response."""
    return Failure(error("server_error", message, code="BAD_BODY", retryable=False))


def of_status(status: int, request: str, detail: str) -> TaskError | None:
    """Return the error for a status, or None below 400."""
    if status < 400:
        return None
    if status == 429:
        kind = "rate_limit"
    elif status in (401, 403):
        kind = "auth"
    elif status in (404, 410):
        kind = "not_found"
    else:
        kind = "client_error" if status < 500 else "server_error"
    try:
        phrase = f" {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = ""
    shown = " ".join(shortened(detail).split())
    return error(kind, f"{request} answered {status}{phrase}{f': {shown}' if shown else ''}", code=str(status))


def of_exception(problem: Exception, request: str, timeouts: Timeouts) -> TaskError:
    """Return the error for an exception of the client."""
    import httpcore2 as core

    text = str(problem) or type(problem).__name__
    if isinstance(problem, core.ConnectTimeout):
        return error("timeout", f"{request}: no connection within {timeouts.connect:g} s (spec.timeout.connect)")
    if isinstance(problem, core.TimeoutException):
        return error("timeout", f"{request}: nothing was received for {timeouts.read:g} s (spec.timeout.read)")
    cause: BaseException | None = problem
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        why = cause.verify_message or text
        message = f"{request}: the server's certificate is not trusted: {why} (to trust its authority, name it in http.ca_file)"
        return error("connection", message, code="CERTIFICATE", retryable=False)
    if isinstance(cause, ssl.SSLError):
        return error("connection", f"{request}: no TLS connection: {cause.reason or text}", code="TLS")
    if isinstance(problem, core.RemoteProtocolError):
        if _TOO_MANY_HEADERS in text:
            message = f"{request}: the response headers are too large (setting http.max_header_bytes)"
            return error("limit", message, code="http.max_header_bytes")
        if _CUT in text:
            return error("connection", f"{request}: the response was truncated: {text}", code="CUT_BODY")
    return error("connection", f"{request}: {_reason(problem) or text}")


def _reason(problem: BaseException) -> str:
    """Return the operating system's message, e.g. 'Connection refused'."""
    reason = ""
    below: BaseException | None = problem
    while below is not None:
        if isinstance(below, OSError) and below.strerror:
            reason = below.strerror if below.errno is None else os.strerror(below.errno)
        below = below.__cause__ or below.__context__
    return reason


def retry_after(status: int, headers: Mapping[str, str], now: float, longest_s: float) -> float | None:
    """Return the wait in seconds that a 429 or 503 asks for, at most `longest_s`; None without a valid Retry-After."""
    asked = headers.get("retry-after", "").strip()
    if status not in (429, 503) or not asked:
        return None
    if asked.isascii() and asked.isdigit():
        return min(float(asked[:12]), longest_s)
    due = _moment(asked)
    if due is None:
        return None
    # Relative to the server's Date header, if there is one, since clocks may differ.
    seen = _moment(headers.get("date", ""))
    return min(max(0.0, due - (now if seen is None else seen)), longest_s)


def _moment(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
