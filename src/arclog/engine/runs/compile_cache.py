"""Compiles playbooks, and caches the plans by their texts. A server compiles large ones in another process, so that the
event loop continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from msgspec import Struct

from arclog.engine.commits.turns import Turns
from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.model.data.digest import sha256
from arclog.model.data.lru import LruCache
from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.plan.net import Plan
from arclog.plan.program import LARGE
from arclog.playbook.files import beside

#: Maximum number of cached texts, and their maximum length; others are compiled each time.
_KEPT = 128
_KEPT_LENGTH = 262_144
#: Maximum number of characters of a text without aliases that is compiled on the event loop: in 2 ms, or in 7 ms if it is
#: made to take long. Four times as many characters can take 60 ms.
_SMALL = 1_024

#: Compiles (text, file, tenant, files) in another process. Returns the encoded plan or raises PlaybookError.
Elsewhere = Callable[[str, str, str, Mapping[str, str]], Awaitable[bytes]]


class Compiled(Struct, frozen=True):
    plan: Plan
    body: bytes
    digest: str


class Compiler:
    """Compiles playbooks with one set of kinds and settings."""

    def __init__(self, kinds: Mapping[str, KindSpec], settings: Settings) -> None:
        self._kinds = kinds
        self._settings = settings
        most_bytes = settings.integer("engine.cache_programs_bytes")
        self._kept: LruCache[str, Compiled] = LruCache(_KEPT, most_bytes, lambda compiled: len(compiled.body))
        #: None if all are compiled here
        self.elsewhere: Elsewhere | None = None
        #: decodes large plans from other processes
        self.turns: Turns | None = None

    async def compile(
        self, text: str, file: str, tenant: str, files: Mapping[str, str] = MappingProxyType({})
    ) -> Compiled:
        """Return the plan of a playbook. `file` is its name in messages, `files` are the files next to it. Raises
        PlaybookError.
        """
        kept = self._kept.get(text)
        if kept is not None and _is_same(kept.plan, file, files):
            return kept
        if self.elsewhere is None or (is_small(text) and sum(map(len, files.values())) <= _SMALL):
            return self.keep(text, build_or_raise(text, file, self._kinds, self._settings, files))
        body = await self.elsewhere(text, file, tenant, files)
        digest = net.digest(body) if len(body) < LARGE else await asyncio.to_thread(net.digest, body)
        return self._keep(text, Compiled(await self._decoded(body, tenant), body, digest))

    async def _decoded(self, body: bytes, tenant: str) -> Plan:
        turns = self.turns
        if turns is None or len(body) < LARGE:
            return net.decode(body)
        pause = turns.pause
        return await turns.run(tenant, lambda: net.decode_in_parts(body, pause))

    def keep(self, text: str, plan: Plan) -> Compiled:
        """Cache a plan that was compiled from this text with the same kinds and settings."""
        body = net.encode(plan)
        return self._keep(text, Compiled(plan, body, net.digest(body)))

    def _keep(self, text: str, compiled: Compiled) -> Compiled:
        if len(text) <= _KEPT_LENGTH:
            self._kept.replace(text, compiled)
        return compiled


def _is_same(plan: Plan, file: str, files: Mapping[str, str]) -> bool:
    """Return whether the files that a plan includes are unchanged."""
    for path, digest in plan.files.items():
        text = files.get(beside(file, path))
        if text is None or sha256(text.encode()) != digest:
            return False
    return True


def is_small(text: str) -> bool:
    """Return whether it is compiled inline. Aliases can make a short text expand to a long one."""
    return len(text) <= _SMALL and not ("&" in text and "*" in text)
