"""A worker's link to its server: it outlasts any outage, and what a server fails at.

Everything a worker asks may be asked twice, so a question goes out again until it is answered or its asker gives up.
That the server is gone is said once, and so is that it is back; each way in which it fails is said.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from arclog.client.connection import Connection
from arclog.model.errors import (
    ArclogError,
    Conflict,
    InvariantBroken,
    ServerFailed,
    ServerUnavailable,
    StoreUnavailable,
)
from arclog.ports import work

log = logging.getLogger("arclog.worker")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
#: What passes by itself, but for ServerFailed.
PASSING = (ServerUnavailable, StoreUnavailable, Conflict)

T = TypeVar("T")


class Link:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lost = False
        #: what was said of failures since the last answer
        self._said: set[str] = set()
        #: a server that takes longer to answer is left for the next one, where there are several
        self.limit_s = math.inf

    async def ask(self, call: str, body: Any, kind: type[T], *, wait_s: float = 0.0, patience_s: float = math.inf) -> T:
        """What the server answers, once it does; the server may take `wait_s` for it."""
        raw = msgspec.json.encode(body)
        return await self.until_answered(lambda: self._once(call, raw, kind, wait_s), patience_s)

    async def ask_once(self, call: str, body: Any, kind: type[T], *, limit_s: float = math.inf) -> T:
        """One try at each server, which may fail."""
        return await self._once(call, msgspec.json.encode(body), kind, 0.0, limit_s)

    async def get(self, path: str, params: dict[str, Any] | None = None) -> bytes:
        asked = f"{work.ROOT}{path}"
        return await self.until_answered(lambda: self._connection.ask("GET", asked, params=params))

    async def until_answered(self, attempt: Callable[[], Awaitable[T]], patience_s: float = math.inf) -> T:
        """What an attempt gives, once one does not fail for a passing reason; raises that after `patience_s`."""
        pause = _FIRST_PAUSE_S
        until = asyncio.get_running_loop().time() + patience_s
        while True:
            try:
                answer = await attempt()
            except ServerFailed:
                raise
            except PASSING as problem:
                self.failed(problem)
                if asyncio.get_running_loop().time() + pause > until:
                    raise
                # Many workers of a server that comes back must not all ask at once.
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            else:
                self.worked()
                return answer

    async def insisted(
        self, attempt: Callable[[], Awaitable[T]], final: tuple[type[ArclogError], ...], tries: float = math.inf
    ) -> T:
        """What an attempt gives, once the server does not fail at it: what it has a bug or no words for, another server, or
        the same one a moment later, may do. Raises what is `final` at once, and anything else after so many tries.
        """
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return await attempt()
            except ArclogError as problem:
                tries -= 1
                if isinstance(problem, final) or tries <= 0:
                    raise
                if str(problem) not in self._said:
                    self._said.add(str(problem))
                    log.error("the server %s fails: %s; it is asked again", self._connection.url, problem)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def failed(self, problem: Exception) -> None:
        if not self._lost:
            self._lost = True
            log.warning("%s; what was done is kept and handed in when the server is back", problem)

    def worked(self) -> None:
        self._said.clear()
        if self._lost:
            self._lost = False
            log.warning("the server %s is back", self._connection.url)

    async def _once(self, call: str, raw: bytes, kind: type[T], wait_s: float, limit_s: float = math.inf) -> T:
        limit_s = min(limit_s, self.limit_s)
        answer = await self._connection.ask(
            "POST", f"{work.ROOT}/{call}", body=raw, safe=True, extra_s=wait_s, limit_s=limit_s
        )
        return decoded(answer, kind)


def decoded(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as problem:
        raise InvariantBroken(f"the server's answer cannot be read: {problem}; do both run the same version?") from None
