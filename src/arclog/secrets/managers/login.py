"""A token by which a secret manager knows this process: fetched when it is needed, kept until shortly before it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, TypeVar

from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable
from arclog.ports.clock import Clock
from arclog.secrets.files import read_small

T = TypeVar("T")
#: Gives a token and for how many seconds it is good; None: it does not say.
Fetch = Callable[[], Awaitable[tuple[T, float | None]]]


class Login(Generic[T]):
    """One token for all who ask at once."""

    def __init__(self, clock: Clock, settings: Settings, fetch: Fetch[T]) -> None:
        self._clock = clock
        self._fetch = fetch
        self._margin_s = settings.number("secrets.token_margin_s")
        self._unsaid_s = settings.number("secrets.manager_cache_s")
        self._token: T | None = None
        self._until = 0.0
        self._asking = asyncio.Lock()
        #: it was given for a time: another one can be had
        self.renewable = False

    async def token(self) -> T:
        async with self._asking:
            if self._token is None or self._clock.monotonic() >= self._until:
                self._token, lasts_s = await self._fetch()
                self.renewable = lasts_s is not None
                # One that does not say how long it is good for may be replaced where it came from.
                good_s = self._unsaid_s if lasts_s is None else max(lasts_s - self._margin_s, lasts_s / 2)
                self._until = self._clock.monotonic() + good_s
            return self._token

    def forget(self) -> None:
        self._token = None


def credentials_text(settings: Settings) -> str:
    """What is in `secrets.manager_credentials_file`; '' when that is not set."""
    name = settings.text("secrets.manager_credentials_file")
    if not name:
        return ""
    try:
        return read_small(Path(name).expanduser(), settings.integer("secrets.max_bytes")).decode().strip()
    except (OSError, ValueError, RuntimeError) as problem:
        why = getattr(problem, "strerror", None) or type(problem).__name__
        message = f"ARCLOG_SECRETS_MANAGER_CREDENTIALS_FILE: {name} cannot be read: {why}"
        raise SecretUnavailable(message, kind="config") from None


def file_text(path: str, what: str) -> str:
    """A small file that another program keeps up to date, as a token of the platform."""
    try:
        return read_small(Path(path), 64 * 1024).decode().strip()
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or type(problem).__name__
        raise SecretUnavailable(f"{what}: {path} cannot be read: {why}", kind="config") from None
