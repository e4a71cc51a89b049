"""Playbooks compiled once: the same text asked for again is the same plan."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from arclog.model.kinds import KindSpec
from arclog.model.settings import Settings
from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.plan.net import Plan

#: Texts kept, and the longest of them; others are compiled each time.
_KEPT = 128
_KEPT_LENGTH = 262_144


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

    def compile(self, text: str, file: str) -> Compiled:
        """The plan of a playbook. Raises PlaybookError; `file` only names it in messages."""
        found = self._kept.get(text)
        if found is None:
            found = self.keep(text, build_or_raise(text, file, self._kinds, self._settings))
        return found

    def keep(self, text: str, plan: Plan) -> Compiled:
        """Take a plan that was made of this text with the same kinds and settings."""
        body = net.encode(plan)
        compiled = Compiled(plan, body, net.digest(body))
        if len(text) <= _KEPT_LENGTH:
            self._kept[text] = compiled
            if len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
        return compiled
