"""Requests to a server, or to several that share a store: each of them can answer every request, so the client switches
to the next one if a server is unavailable.

A request that is safe to repeat is retried while the server cannot be reached or is busy, for at most
`client.patience_s`; any other request is repeated only if it cannot have arrived. Redirects are never followed, so that
a token is sent only to the given server.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import os
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from arclog import __version__
from arclog.drivers.addresses import shown
from arclog.drivers.backoff import Patience, retry
from arclog.drivers.http.direct import (
    Answer,
    BrokenOff,
    DirectClient,
    NotAnswered,
    NotConnected,
    Origin,
    RequestFailed,
)
from arclog.model import errors
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError, ServerUnavailable, SettingsError
from arclog.operations.operation import ATTEMPT_HEADER

if TYPE_CHECKING:
    import ssl

    import httpx2  # streams, uploads and proxies need it; importing it takes as long as the rest of the client

# ── problems ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Converts errors of a server: `application/problem+json` becomes the exception that the server raised.

#: title of a problem → the exception of the same name
_BY_TITLE: dict[str, type[errors.ArclogError]] = {
    kind.__name__: kind
    for kind in (
        errors.RequestRejected,
        errors.NotFound,
        errors.Unauthenticated,
        errors.NotAllowed,
        errors.RequestTooLarge,
        errors.EventTooLarge,
        errors.RunEnded,
        errors.DoesNotFit,
        errors.StaleFence,
        errors.Conflict,
        errors.StoreUnavailable,
        errors.StoreError,
        errors.ResultUnavailable,
        errors.ResultTooLarge,
        errors.ResultStoreAway,
        errors.SecretUnavailable,
        errors.LeaseLost,
        errors.SettingsError,
        errors.InvariantBroken,
        errors.ExpressionError,
    )
}
_BY_STATUS: dict[int, type[errors.ArclogError]] = {401: errors.Unauthenticated, 403: errors.NotAllowed}
_MOST_SHOWN = 300


def error_of(status: int, content_type: str, body: bytes, where: str) -> errors.ArclogError:
    """The exception for an answer that is not a success; `where` names the server and the request."""
    problem = _problem(content_type, body)
    if problem is None:
        return _no_problem(status, body, where)
    title, detail = str(problem.get("title", "")), str(problem.get("detail", ""))
    if title == "PlaybookError":
        return _playbook_error(problem, detail)
    if title == "InputsRefused":
        return errors.InputsRefused(detail, _faults(problem.get("faults")))
    if title == "ReportGap":
        gap = errors.ReportGap(0, int(problem.get("expected") or 0), 0)
        gap.args = (detail,)
        return gap
    if title == "InternalError":
        return errors.ServerFailed(f"{where}: {detail}")
    kind = _BY_TITLE.get(title) or _BY_STATUS.get(status)
    if kind is not None:
        return kind(detail or title)
    if status >= 500 or status == 429:
        return errors.ServerUnavailable(f"{where}: {detail or title} ({status})")
    return errors.RequestRejected(f"{where}: {detail or title} ({status})")


def _problem(content_type: str, body: bytes) -> dict[str, Any] | None:
    if not content_type.partition(";")[0].strip().endswith("json"):
        return None
    try:
        problem = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return problem if isinstance(problem, dict) and "title" in problem else None


def _no_problem(status: int, body: bytes, where: str) -> errors.ArclogError:
    """Return the error for a response that came from a proxy, or from something other than arclog."""
    text = " ".join(body[: 4 * _MOST_SHOWN].decode("utf-8", "replace").split())[:_MOST_SHOWN]
    shown_text = f": {text}" if text else ""
    if status in (401, 403):
        return _BY_STATUS[status](f"{where} answers {status}{shown_text}")
    return errors.ServerUnavailable(f"{where} answers {status}, not as an arclog server does{shown_text}")


def _faults(raw: Any) -> list[tuple[str, str]]:
    faults = raw if isinstance(raw, list) else []
    return [(str(fault.get("path", "")), str(fault.get("message", ""))) for fault in faults if isinstance(fault, dict)]


def _playbook_error(problem: dict[str, Any], detail: str) -> errors.ArclogError:
    try:
        findings = msgspec.convert(problem.get("findings"), list[errors.Finding])
    except msgspec.ValidationError:
        return errors.RequestRejected(detail)
    return errors.PlaybookError(findings, file=str(problem.get("file") or ""))


# ── connection ────────────────────────────────────────────────────────────────────────────────────────────────────────

#: Statuses of a server, or of a proxy in front of it, that is temporarily unable to answer.
_TOO_MANY = 429
_BUSY = frozenset({_TOO_MANY, 502, 503, 504})
#: Those of them after which another server is tried; not 429, which has a Retry-After.
_AWAY = frozenset({502, 503, 504})
_AGENT = f"arclog/{__version__}"
_REDIRECTS = (301, 302, 303, 307, 308)
#: Variables that name a proxy, in lower or upper case.
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")

_NO_ANSWER = Answer(0, {}, b"")

Params = Mapping[str, Any]


class _Request(NamedTuple):
    method: str
    path: str
    params: Params | None
    body: bytes | None
    #: the time for a connection
    connect_s: float
    #: maximum time without receiving a part of the response
    silence_s: float
    #: the process that should answer; '' for any
    server: str = ""


class _Failure(NamedTuple):
    """The failure of a request."""

    url: str
    error: ArclogError
    #: whether another server may succeed
    is_away: bool
    #: whether the failure is temporary
    is_passing: bool
    #: whether no part of the request can have arrived
    is_unsent: bool = False
    #: whether the request was sent and the connection broke: the server may have died of it
    is_unanswered: bool = False
    #: whether the server refused the request unread
    is_unread: bool = False
    #: the pause that the server requests
    pause_s: float = 0.0


class Connection:
    """The addresses of the servers, the token and the HTTP client."""

    def __init__(self, url: str, settings: Settings, *, token: str = "") -> None:
        """`url` may name several servers, separated by commas."""
        self._urls = checked_urls(url)
        # Clients begin with a random one, so that the load is shared.
        self._at = random.randrange(len(self._urls))
        self._timeout_s = settings.number("client.timeout_s")
        self._patience_s = settings.number("client.patience_s")
        self._token = checked_token(token)
        #: whether a server has ever answered; if not, the address is probably wrong, and the error is raised without
        #: retries
        self._reached = False
        self._is_local = all(map(_is_loopback, self._urls))
        # Without TLS there is nothing to verify, and loading certificates takes long.
        self._trust = _trust(settings.text("client.ca_file")) if self.url.startswith("https:") else None
        self._direct = None if self._is_proxied() else DirectClient()
        self._general: httpx2.AsyncClient | None = None

    def _is_proxied(self) -> bool:
        """Return whether requests may go through a proxy. Proxy settings do not apply to servers on this machine."""
        return not self._is_local and any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES)

    def _http(self) -> httpx2.AsyncClient:
        """The client for streams, uploads and proxies."""
        import httpx2

        if self._general is None:
            self._general = httpx2.AsyncClient(
                headers={"User-Agent": _AGENT},
                auth=self._signed,
                verify=self._trust or False,
                timeout=self._timeout_s,
                trust_env=not self._is_local,
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=3.0),
            )
        return self._general

    @property
    def url(self) -> str:
        """The address of the current server."""
        return self._urls[self._at]

    def _leave(self, url: str) -> None:
        """Switch to the next server, unless another request has done so already."""
        if self.url == url:
            self._at = (self._at + 1) % len(self._urls)

    def patience(self) -> Patience:
        return Patience(self._seconds_to_retry)

    def _seconds_to_retry(self) -> float:
        return self._patience_s if self._reached else 0.0

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        safe: bool | None = None,
        extra_s: float = 0.0,
        limit_s: float = math.inf,
        sent_before: int = 0,
    ) -> bytes:
        """The body of a success. `safe`: may be sent twice (default: GET may); `extra_s`: the time that the server may
        wait; `limit_s`: with several servers, the time after which the next one is tried; `sent_before`: how often the
        caller has sent it without an answer.
        """
        answer = await self.exchange(
            method,
            path,
            params=params,
            body=body,
            safe=safe,
            extra_s=extra_s,
            limit_s=limit_s,
            sent_before=sent_before,
        )
        return answer.body

    async def exchange(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        safe: bool | None = None,
        extra_s: float = 0.0,
        limit_s: float = math.inf,
        sent_before: int = 0,
        server: str = "",
    ) -> Answer:
        """The whole answer of a success; see `ask`. `server`: the process that should answer, if it can be reached."""
        may_repeat = method == "GET" if safe is None else safe
        timeout_s = min(self._timeout_s, limit_s) if len(self._urls) > 1 else self._timeout_s
        request = _Request(method, path, params, body, timeout_s, timeout_s + extra_s, server)
        #: the pause after the last failure; None if it is final
        pause_s: float | None = None
        unanswered = sent_before

        async def attempt() -> Answer:
            """Try each server that is available."""
            nonlocal pause_s, unanswered
            away: set[str] = set()
            while True:
                answer, failure = await self._sent_once(request, timeout_s, unanswered)
                if failure is None:
                    return answer
                unanswered += failure.is_unanswered
                again = failure.is_unsent or (failure.is_passing and (may_repeat or failure.is_unread))
                pause_s = failure.pause_s if again else None
                if failure.is_away:
                    away.add(failure.url)
                    self._leave(failure.url)
                    if again and self.url not in away:
                        continue
                raise failure.error

        return await retry(attempt, on=ArclogError, patience_s=self._seconds_to_retry, pause_s=lambda _: pause_s)

    async def _sent_once(self, request: _Request, limit_s: float, unanswered: int) -> tuple[Answer, _Failure | None]:
        """The answer, and the failure unless it is a success."""
        url = self.url
        headers = {} if request.body is None else {"Content-Type": "application/json"}
        if unanswered:
            headers[ATTEMPT_HEADER] = str(unanswered + 1)
        try:
            if self._direct is None:
                answer = await self._sent_by_proxy(url, request, headers)
            else:
                answer = await self._sent_directly(self._direct, url, request, headers)
        except RequestFailed as problem:
            error = self._unreachable(url, problem, limit_s)
            is_unsent = isinstance(problem, NotConnected)
            return _NO_ANSWER, _Failure(
                url, error, is_away=True, is_passing=True, is_unsent=is_unsent, is_unanswered=not is_unsent
            )
        self._reached = True
        if answer.is_success:
            return answer, None
        status = answer.status
        return answer, _Failure(
            url,
            self._refusal(url, request.method, request.path, answer),
            is_away=status in _AWAY,
            is_passing=status in _BUSY,
            is_unread=status == _TOO_MANY,
            pause_s=_retry_after(answer),
        )

    async def _sent_directly(self, direct: DirectClient, url: str, request: _Request, more: dict[str, str]) -> Answer:
        parts = urlsplit(url)
        headers = {"User-Agent": _AGENT, "Accept": "*/*", **more}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return await direct.request(
            Origin(parts.hostname or "", _port(parts), self._trust),
            request.method,
            f"{parts.path}{request.path}{_query(request.params)}",
            headers=headers,
            body=request.body,
            connect_s=request.connect_s,
            silence_s=request.silence_s,
            server=request.server,
        )

    async def _sent_by_proxy(self, url: str, request: _Request, headers: dict[str, str]) -> Answer:
        import httpx2

        try:
            answer = await self._http().request(
                request.method,
                f"{url}{request.path}",
                params=request.params,
                content=request.body,
                headers=headers,
                timeout=httpx2.Timeout(request.connect_s, read=request.silence_s),
            )
        except httpx2.HTTPError as problem:
            raise _failure_of(problem) from problem
        return _answer_of(answer)

    @asynccontextmanager
    async def streamed(
        self, path: str, *, params: Params | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """The answer to one GET, with its body unread. Raises ServerUnavailable if it breaks off; there is no retry."""
        import httpx2

        url, all_headers = self.url, dict(headers or {})
        try:
            async with self._http().stream("GET", f"{url}{path}", params=params, headers=all_headers) as answer:
                self._reached = True
                if not answer.is_success:
                    await answer.aread()
                    raise self._refused(url, "GET", path, _answer_of(answer))
                yield answer
        except httpx2.HTTPError as problem:
            self._leave(url)
            raise self._unreachable(url, _failure_of(problem)) from problem

    async def sent(self, path: str, content: AsyncIterator[bytes], *, params: Params | None = None) -> bytes:
        """POST a body piece by piece, once; the body of a success."""
        import httpx2

        url = self.url
        try:
            answer = _answer_of(await self._http().post(f"{url}{path}", params=params, content=content))
        except httpx2.HTTPError as problem:
            self._leave(url)
            raise self._unreachable(url, _failure_of(problem)) from problem
        if not answer.is_success:
            raise self._refused(url, "POST", path, answer)
        return answer.body

    async def close(self) -> None:
        if self._direct is not None:
            self._direct.close()
        if self._general is not None:
            await self._general.aclose()

    def _signed(self, request: httpx2.Request) -> httpx2.Request:
        """Use only the given token: ~/.netrc may contain this host, too."""
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def _refused(self, url: str, method: str, path: str, answer: Answer) -> ArclogError:
        """The error of a request that is not repeated here; a repetition by the caller goes to another server."""
        if answer.status in _AWAY:
            self._leave(url)
        return self._refusal(url, method, path, answer)

    def _refusal(self, url: str, method: str, path: str, answer: Answer) -> ArclogError:
        elsewhere = answer.headers.get("location")
        if elsewhere is not None and answer.status in _REDIRECTS:
            return ServerUnavailable(
                f"{url} sends its callers on to {shown(elsewhere)}; if that is the server, name it"
            )
        where = f"{method} {url}{path}"
        error = error_of(answer.status, answer.headers.get("content-type", ""), answer.body, where)
        if answer.status == 401 and not self._token:
            error.args = (f"{error}; {url} requires a token: set ARCLOG_TOKEN, or use --token-file",)
        return error

    def _unreachable(self, url: str, problem: RequestFailed, limit_s: float = math.inf) -> ServerUnavailable:
        if isinstance(problem, NotConnected):
            problem_text = "cannot be reached"
            hint = "; is `arclog up` or `arclog server` running there?"
        elif isinstance(problem, NotAnswered):
            problem_text, hint = f"did not answer within {min(self._timeout_s, limit_s):g} s", ""
            if limit_s >= self._timeout_s:
                hint = " (setting client.timeout_s)"
        else:
            problem_text, hint = "broke off", ""
        detail = str(problem).strip()
        return ServerUnavailable(f"the server {url} {problem_text}{f': {detail}' if detail else ''}{hint}")


def _failure_of(problem: httpx2.HTTPError) -> RequestFailed:
    import httpx2

    detail = str(problem)
    if isinstance(problem, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return NotConnected(detail)
    return NotAnswered(detail) if isinstance(problem, httpx2.TimeoutException) else BrokenOff(detail)


def _answer_of(answer: httpx2.Response) -> Answer:
    """An answer that was read to its end."""
    return Answer(answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, answer.content)


def _query(params: Params | None) -> str:
    if not params:
        return ""
    return "?" + urlencode({name: _text_of(value) for name, value in params.items()}, doseq=True)


def _text_of(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_text_of(item) for item in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value


def checked_urls(urls: str) -> tuple[str, ...]:
    """The addresses of servers, separated by commas. Raises SettingsError."""
    if "@" in urls:
        # The message shows no part of it: with a comma or slash in a password, parts of it would look like hosts.
        raise SettingsError(
            "a server's address must not contain a user name or password; put the token in ARCLOG_TOKEN"
        )
    checked = tuple(dict.fromkeys(checked_url(url.strip()) for url in urls.split(",")))
    if len({url.partition(":")[0] for url in checked}) > 1:
        raise SettingsError("some of the servers' addresses are http and some https: a token would be sent unencrypted")
    return checked


def checked_url(url: str) -> str:
    """The address of a server without its last slash. Raises SettingsError."""
    try:
        # urlsplit would drop line breaks and tabs silently.
        parts = urlsplit(url if url.isprintable() and " " not in url else "")
        port = parts.port
        host = (parts.hostname or "").encode("ascii" if url.isascii() else "idna").decode("ascii")
    except ValueError:  # UnicodeError is one
        raise SettingsError(f"{shown(url)} is not an address of a server; e.g. http://127.0.0.1:8420") from None
    if parts.scheme not in ("http", "https") or not host:
        raise SettingsError(f"{shown(url)} is not an address of a server; write http:// or https:// and a host")
    if parts.username is not None or parts.query or parts.fragment:
        raise SettingsError(f"the server's address {shown(url)} has more than a path; put the token in ARCLOG_TOKEN")
    shown_host = f"[{host}]" if ":" in host else host
    path = quote(parts.path, safe="/%:@!$&'()*+,;=~")
    return f"{parts.scheme}://{shown_host}{'' if port is None else f':{port}'}{path}".rstrip("/")


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def checked_token(token: str) -> str:
    stripped = token.strip()
    if not stripped.isascii() or not stripped.isprintable() or " " in stripped:
        raise SettingsError("the token contains invalid characters; check ARCLOG_TOKEN or the token file")
    return stripped


def _trust(ca_file: str) -> ssl.SSLContext:
    """The TLS context: the default authorities, and those in a file."""
    import ssl

    import httpx2

    context = httpx2.create_ssl_context()
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as problem:
            raise SettingsError(f"client.ca_file {ca_file} cannot be used: {problem}; name a PEM file") from None
    return context


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _retry_after(answer: Answer) -> float:
    """The seconds of Retry-After; a date is ignored."""
    try:
        return max(0.0, float(answer.headers.get("retry-after", "")))
    except ValueError:
        return 0.0
