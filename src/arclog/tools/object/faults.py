"""What obstore's errors mean to a task. Their texts hold times and addresses that differ on every try: we write our own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from arclog.drivers.objects import report_of
from arclog.model.outcome import ERROR_KINDS, error
from arclog.tools.object.location import Refused, refuse

if TYPE_CHECKING:
    from arclog.drivers.http.forward import Route

_TRANSPORT = re.compile(r"reqwest|hyper|HttpError|HTTP error|error sending request")
#: What the forwarder answers to a request without its token.
_NO_TOKEN = 407


def translated(problem: Exception, url: str, *, signed: bool, route: Route | None = None) -> Refused:
    """The task's error for a failure of obstore; one that is ours passes as it is. A connection that was not made says why
    on its route.
    """
    if isinstance(problem, Refused):
        return problem
    from obstore import exceptions

    status, code, message, late = report_of(problem)
    detail = f" ({message})" if message else ""
    if isinstance(problem, FileNotFoundError) or status == 404:
        what = "there is no such bucket" if code in ("NoSuchBucket", "ContainerNotFound") else "there is no such object"
        return refuse("not_found", f"{url}: {what}", code or "NOT_FOUND")
    if isinstance(problem, exceptions.AlreadyExistsError):
        return refuse("conflict", f"{url}: already exists (if_absent)", "EXISTS")
    if isinstance(problem, exceptions.PreconditionError):
        return refuse("conflict", f"{url}: was changed while it was read{detail}", code or "CHANGED")
    denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    if isinstance(problem, denied) or status in (401, 403):
        hint = "" if signed else "; the request was not signed: give the task an `auth`"
        return refuse("auth", f"{url}: access denied{detail}{hint}", code or (f"HTTP_{status}" if status else "DENIED"))
    if isinstance(problem, (ValueError, exceptions.InvalidPathError)):
        return refuse(
            "config", f"{url}: the key cannot be used; its parts between slashes may not be empty, `.` or `..`"
        )
    if isinstance(problem, exceptions.NotSupportedError | NotImplementedError):
        return refuse("config", f"{url}: this store cannot do that", "NOT_SUPPORTED")
    if status == _NO_TOKEN and route is not None:
        redirected = (
            f"{url}: the server redirects to another one over http, which is not followed; name that as the endpoint"
        )
        return refuse("config", redirected, "REDIRECT_REFUSED")
    if status:
        kind = "rate_limit" if status == 429 else "server_error" if status >= 500 else "client_error"
        return Refused(
            error(
                kind,
                f"{url}: the server answered {status}{detail}",
                code=code or f"HTTP_{status}",
                retryable=ERROR_KINDS[kind],
            )
        )
    known = route.take_problem() if route is not None else None
    if known is not None:
        return Refused(error(known.kind, f"{url}: {known.message}", code=known.code, retryable=known.retryable))
    if late:
        return refuse(
            "timeout",
            f"{url}: the server did not answer in time (settings object.connect_timeout_s, object.read_timeout_s)",
        )
    if isinstance(problem, exceptions.BaseError) and not _TRANSPORT.search(str(problem)):
        return refuse("server_error", f"{url}: the server's answer is none that this store gives", "BAD_ANSWER")
    if isinstance(problem, exceptions.BaseError | OSError):
        return refuse("connection", f"{url}: the server cannot be reached, or the connection broke", "CONNECTION")
    raise problem
