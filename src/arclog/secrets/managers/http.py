"""Requests to a secret manager and the meaning of their failures: one small client for all managers.

Messages name the manager and its host, never a header, a body or a query. Redirects are not followed: a credential is
sent only to the configured address, if the network guard allows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from arclog.drivers.addresses import shown
from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable, SettingsError
from arclog.ports.clock import Clock
from arclog.secrets.files import read_small
from arclog.secrets.oauth import check_url

if TYPE_CHECKING:
    from arclog.drivers.http.fetch import Fetcher


#: Statuses after which the same request may succeed later.
_PASSING = frozenset({408, 425, 429})


class Answer(NamedTuple):
    status: int
    body: bytes

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of a JSON object; {} for anything else."""
        try:
            value = msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, UnicodeError):
            return {}
        return value if isinstance(value, dict) else {}


class ManagerHttp:
    """Sends requests to one manager. `name` is its name in messages."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self._timeout_s = settings.number("secrets.manager_timeout_s")
        self._most = 2 * settings.integer("secrets.max_bytes") + 64 * 1024  # base64 and the JSON around it
        self._settings = settings
        self._fetcher: Fetcher | None = None

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Return the answer, whatever its status. Raises SecretUnavailable if there is none."""
        from arclog.drivers.http.fetch import Late, NoAnswer, TooLarge

        where = f"{self.name} at {shown(url)}"
        all_headers = dict(headers or {})
        if form is not None:
            body = urlencode(form).encode()
            all_headers["content-type"] = "application/x-www-form-urlencoded"
        try:
            answer = await self._client().ask(method, url, headers=all_headers, body=body)
        except Late:
            message = f"{where} did not answer within {self._timeout_s:g} s (secrets.manager_timeout_s)"
            raise SecretUnavailable(message, kind="connection", retryable=True) from None
        except TooLarge:
            raise SecretUnavailable(f"{where} answered more than {self._most} bytes", kind="config") from None
        except NoAnswer as problem:
            kind = "connection" if problem.retryable else "config"
            raise SecretUnavailable(f"{where}: {problem}", kind=kind, retryable=problem.retryable) from None
        return Answer(answer.status, answer.body)

    def _client(self) -> Fetcher:
        if self._fetcher is None:
            from arclog.drivers.http.fetch import Fetcher
            from arclog.drivers.http.guard import METADATA_SERVICES, guard_of

            guard = guard_of(self._settings, "network.allow_networks", "secret managers", *METADATA_SERVICES)
            # The client also asks metadata services: no proxy of the environment may be used.
            self._fetcher = Fetcher(
                self._settings, guard, timeout_s=self._timeout_s, max_bytes=self._most, proxies=False
            )
        return self._fetcher

    def refusal(self, answer: Answer, url: str, code: str, remedy: str) -> SecretUnavailable:
        """Return the error for an answer without a secret. `code` is the manager's error code."""
        word = f" {code}" if code.replace("_", "").isalnum() and len(code) <= 80 else ""
        message = f"{self.name} at {shown(url)} answered {answer.status}{word}"
        if answer.status >= 500 or answer.status in _PASSING:
            return SecretUnavailable(f"{message}; try again in a moment", kind="connection", retryable=True)
        return SecretUnavailable(f"{message}; {remedy}", kind="auth" if answer.status in (400, 401, 403) else "config")

    async def close(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()
            self._fetcher = None


class SecretNotThere(SecretUnavailable):
    """The manager has no secret of that name; a wider scope may have one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no secret {name}", kind="config")


def checked_address(url: str, noun: str) -> str:
    """Return a manager's address without its last slash. Raises SettingsError if it is not safe for secrets."""
    wrong = check_url(url)
    if wrong:
        raise SettingsError(f"{noun}: {wrong.replace('token_url', 'it')}")
    return url.rstrip("/")


# The token that authenticates this process at a secret manager: fetched when needed, cached until shortly before it
# expires.


T = TypeVar("T")
#: Returns a token and its lifetime in seconds; None if the lifetime is unknown.
Fetch = Callable[[], Awaitable[tuple[T, float | None]]]


class Login(Generic[T]):
    """One token for all concurrent callers."""

    def __init__(self, clock: Clock, settings: Settings, fetch: Fetch[T]) -> None:
        self._clock = clock
        self._fetch = fetch
        self._margin_s = settings.number("secrets.token_margin_s")
        self._unsaid_s = settings.number("secrets.manager_cache_s")
        self._token: T | None = None
        self._until = 0.0
        self._asking = asyncio.Lock()
        #: whether the token has a lifetime, so that a new one can be fetched
        self.renewable = False

    async def token(self) -> T:
        async with self._asking:
            if self._token is None or self._clock.monotonic() >= self._until:
                self._token, lasts_s = await self._fetch()
                self.renewable = lasts_s is not None
                # A token without a lifetime may be replaced at its source.
                good_s = self._unsaid_s if lasts_s is None else max(lasts_s - self._margin_s, lasts_s / 2)
                self._until = self._clock.monotonic() + good_s
            return self._token

    def forget(self) -> None:
        self._token = None


def credentials_text(settings: Settings) -> str:
    """Return the content of `secrets.manager_credentials_file`; '' if it is not set."""
    name = settings.text("secrets.manager_credentials_file")
    if not name:
        return ""
    try:
        return read_small(Path(name).expanduser(), settings.integer("secrets.max_bytes")).decode().strip()
    except (OSError, ValueError, RuntimeError) as problem:
        why = getattr(problem, "strerror", None) or type(problem).__name__
        message = f"ARCLOG_SECRETS_MANAGER_CREDENTIALS_FILE: {name} cannot be read: {why}"
        raise SecretUnavailable(message, kind="config") from None


def file_text(path: str, noun: str) -> str:
    """Return the content of a small file that another program updates, such as a token of the platform."""
    try:
        return read_small(Path(path), 64 * 1024).decode().strip()
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or type(problem).__name__
        raise SecretUnavailable(f"{noun}: {path} cannot be read: {why}", kind="config") from None
