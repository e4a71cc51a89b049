"""What a secret manager gave, for a while: it is asked once for all tasks that use a secret at the same time."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from arclog.model.config.settings import Settings
from arclog.model.data.kept import Kept
from arclog.model.errors import SecretUnavailable
from arclog.ports.clock import Clock
from arclog.ports.secrets import SecretManager
from arclog.secrets.managers.http import SecretNotThere

_MOST = 1_000
#: How long a manager that could not be reached is not asked again: tasks must not queue up behind its time limit.
_FAILED_S = 2.0


class _Kept(NamedTuple):
    until: float
    text: str = ""
    problem: SecretUnavailable | None = None


class ManagedSecrets:
    """Secrets of one manager by name and scope."""

    def __init__(self, manager: SecretManager, settings: Settings, clock: Clock) -> None:
        self._manager = manager
        self._clock = clock
        self._cache_s = settings.number("secrets.manager_cache_s")
        self._kept: Kept[str, _Kept] = Kept(_MOST)
        self._asking: dict[str, asyncio.Future[str]] = {}

    async def get(self, name: str, scope: str) -> str:
        """The secret of that name in the narrowest scope that has one. Raises SecretUnavailable."""
        looked = []
        for path in self._manager.paths.of(name, scope):
            try:
                return await self._read(path)
            except SecretNotThere:
                looked.append(path)
        message = f"{self._manager.place} has no secret {' or '.join(looked)}"
        raise SecretUnavailable(
            f"{message}; store it there (its name is defined by secrets.manager_path)", kind="config"
        )

    def forget(self, name: str, scope: str) -> None:
        """It was not accepted where it was used: it may have been changed."""
        for path in self._manager.paths.of(name, scope):
            self._kept.pop(path)

    async def close(self) -> None:
        await self._manager.close()

    async def _read(self, path: str) -> str:
        known = self._kept.get(path)
        if known is not None and self._clock.monotonic() < known.until:
            if known.problem is not None:
                raise known.problem
            return known.text
        asking = self._asking.get(path)
        if asking is None:
            # A task of its own: whoever asked first may be cancelled, and others wait for the same answer.
            asking = self._asking[path] = asyncio.ensure_future(self._ask(path))
            asking.add_done_callback(lambda done: self._asked(path, done))
        return await asyncio.shield(asking)

    async def _ask(self, path: str) -> str:
        try:
            text = await self._manager.read(path)
        except SecretNotThere as problem:
            # A secret of a narrower scope that is not there is asked for by every task.
            self._keep(path, _Kept(self._clock.monotonic() + self._cache_s, problem=problem))
            raise
        except SecretUnavailable as problem:
            self._keep(path, _Kept(self._clock.monotonic() + min(_FAILED_S, self._cache_s), problem=problem))
            if problem.kind == "auth":
                self._manager.forget()  # the next one logs in again
            raise
        self._keep(path, _Kept(self._clock.monotonic() + self._cache_s, text))
        return text

    def _keep(self, path: str, kept: _Kept) -> None:
        if self._cache_s:
            self._kept.replace(path, kept)

    def _asked(self, path: str, done: asyncio.Future[str]) -> None:
        self._asking.pop(path, None)
        if not done.cancelled():
            done.exception()  # whoever waits for it has it
