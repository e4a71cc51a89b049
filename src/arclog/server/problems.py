"""Every error as `application/problem+json` (RFC 9457): what, where, and what to do."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response

from arclog.model import errors
from arclog.model.config.settings import Settings

log = logging.getLogger("arclog.server")

MEDIA_TYPE = "application/problem+json"

#: The first matching class decides.
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.Unauthenticated, 401),
    (errors.NotAllowed, 403),
    (errors.TooManyRequests, 429),
    (errors.NotFound, 404),
    (errors.RequestTooLarge, 413),
    (errors.RunEnded, 409),
    (errors.EventDiffers, 409),
    (errors.DoesNotFit, 409),
    (errors.ReportGap, 409),
    (errors.StaleFence, 409),
    (errors.PlaybookError, 422),
    (errors.RequestRejected, 422),
    (errors.ResultStoreAway, 503),
    (errors.ResultUnavailable, 404),
    (errors.Conflict, 409),
    # This server's key does not open the sealed secret, or the vault cannot be used; another server may succeed.
    (errors.SecretUnavailable, 409),
    # A run in quarantine stays there until it is resumed, so a retry is of no use.
    (errors.Poisoned, 409),
    (errors.StoreUnavailable, 503),
)


def status_of(error: errors.ArclogError) -> int:
    """The HTTP status of an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def title_of(error: errors.ArclogError) -> str:
    """The title of an error, by which callers distinguish errors. For a worker, a command that it never held is one
    that it lost.
    """
    return errors.StaleFence.__name__ if isinstance(error, errors.StaleFence) else type(error).__name__


def problem(status: int, title: str, detail: str = "", **more: Any) -> Response:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(body), status, headers, MEDIA_TYPE)


def answer_of(error: errors.ArclogError) -> Response:
    """An ArclogError as a problem."""
    status = status_of(error)
    more: dict[str, Any] = {}
    if isinstance(error, errors.PlaybookError):
        more["findings"] = [msgspec.to_builtins(finding) for finding in error.findings]
        more["file"] = error.file
    if isinstance(error, errors.InputsRefused):
        more["faults"] = [{"path": path, "message": message} for path, message in error.faults]
    if isinstance(error, errors.ReportGap):
        more["expected"] = error.expected
    answer = problem(status, title_of(error), str(error), **more)
    if isinstance(error, errors.TooManyRequests):
        answer.headers["Retry-After"] = str(error.retry_after_s)
    return answer


def hide_places(error: errors.ArclogError, settings: Settings, request: str) -> None:
    """Take the server's own paths out of an error's message: they concern the operator, not the caller. The log keeps
    them.
    """
    key = settings.text("secrets.key_file") if isinstance(error, errors.SecretUnavailable) else ""
    for place in (key, str(Path(settings.text("home")))):
        if place in str(error) and place not in ("", ".", "/"):
            log.warning("%s: %s", request, error)
            error.args = (str(error).replace(place, "…"),)
