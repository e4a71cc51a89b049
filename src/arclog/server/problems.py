"""Every error as `application/problem+json` (RFC 9457): what, where, and what to do."""

from __future__ import annotations

import logging
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from arclog.model import errors

log = logging.getLogger("arclog.server")

MEDIA_TYPE = "application/problem+json"

#: The first class that fits decides.
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
    # This server's key does not fit what is kept, or the place cannot be used: another server may do better.
    (errors.SecretUnavailable, 409),
    (errors.StoreUnavailable, 503),
)


def status_of(error: errors.ArclogError) -> int:
    """As which HTTP status an error is answered."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def title_of(error: errors.ArclogError) -> str:
    """What callers tell errors apart by. To a worker, a command that was never its own is one that it lost."""
    return errors.StaleFence.__name__ if isinstance(error, errors.StaleFence) else type(error).__name__


def problem(status: int, title: str, detail: str = "", **more: Any) -> Response:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(body), status, headers, MEDIA_TYPE)


def answer_of(error: errors.ArclogError) -> Response:
    """One of our errors as a problem."""
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


def install(app: FastAPI) -> None:
    """Answer every exception as a problem; what nobody expected is a 500 that gives nothing away."""

    @app.exception_handler(errors.ArclogError)
    async def known(request: Request, error: errors.ArclogError) -> Response:
        settings = request.app.state.services.settings
        key = settings.text("secrets.key_file") if isinstance(error, errors.SecretUnavailable) else ""
        for place in (key, str(Path(settings.text("home")))):
            if place in str(error) and place not in ("", ".", "/"):
                # Which folder it is matters to whoever looks after the server, and to nobody who calls it.
                log.warning("%s %s: %s", request.method, request.url.path, error)
                error.args = (str(error).replace(place, "…"),)
        return answer_of(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        places = [{"at": ".".join(map(str, one["loc"])), "message": one["msg"]} for one in error.errors()]
        said = "; ".join(f"{place['at']}: {place['message']}" for place in places)
        return problem(422, "RequestRejected", f"the request is invalid: {said}", findings=places)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        phrase = HTTPStatus(error.status_code).phrase
        detail = str(error.detail)
        if detail == phrase:  # the router's own: no such path, or no such method there
            detail = f"there is no route {request.method} {request.url.path}; /api/docs lists all routes"
        answer = problem(error.status_code, phrase.replace(" ", ""), detail)
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> Response:
        return problem(500, "InternalError", f"internal error: {type(error).__name__}; the server's log has details")
