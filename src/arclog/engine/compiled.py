"""Playbooks compiled once: the same text asked for again is the same plan. Where a server asks, large ones are compiled in
another process, so that the event loop goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from arclog.model.kinds import KindSpec
from arclog.model.settings import Settings
from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.plan.net import Plan

#: Texts kept, and the longest of them; others are compiled each time.
_KEPT = 128
_KEPT_LENGTH = 262_144
#: A text of so many characters without aliases is compiled in a few milliseconds.
_SMALL = 4_096

#: Compiles (text, file, tenant) elsewhere; the encoded plan, or a PlaybookError.
Elsewhere = Callable[[str, str, str], Awaitable[bytes]]


class Compiled(Struct, frozen=True):
    plan: Plan
    body: bytes
    digest: str


class Compiler:
    """Compiles playbooks with one set of kinds and settings."""

    def __init__(self, kinds: Mapping[str, KindSpec], settings: Settings) -> None:
        self._kinds = kinds
        self._settings = settings
        self._kept: dict[str, Compiled] = {}
        #: None: all are compiled here
        self.elsewhere: Elsewhere | None = None

    async def compile(self, text: str, file: str, tenant: str) -> Compiled:
        """The plan of a playbook. Raises PlaybookError; `file` only names it in messages."""
        found = self._kept.get(text)
        if found is not None:
            return found
        if self.elsewhere is None or _is_small(text):
            return self.keep(text, build_or_raise(text, file, self._kinds, self._settings))
        body = await self.elsewhere(text, file, tenant)
        return self._keep(text, Compiled(net.decode(body), body, net.digest(body)))

    def keep(self, text: str, plan: Plan) -> Compiled:
        """Take a plan that was made of this text with the same kinds and settings."""
        body = net.encode(plan)
        return self._keep(text, Compiled(plan, body, net.digest(body)))

    def _keep(self, text: str, compiled: Compiled) -> Compiled:
        if len(text) <= _KEPT_LENGTH:
            self._kept[text] = compiled
            if len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
        return compiled


def _is_small(text: str) -> bool:
    """Whether it is compiled at once. Aliases let a short text stand for a long one."""
    return len(text) <= _SMALL and not ("&" in text and "*" in text)
