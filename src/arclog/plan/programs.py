"""Programs that are kept in memory, as many as fit: a large plan takes about eleven times the bytes of its encoding.

Small and large ones are kept apart, so that a few large ones do not drive out the many small ones of others.
"""

from __future__ import annotations

from arclog.model.config.settings import Settings
from arclog.model.data.kept import Kept
from arclog.plan.program import Program

#: Bytes of an encoded plan from which on it is large: to prepare a smaller one takes a few milliseconds.
LARGE = 32_768


class Programs:
    """By the digest of their plan; the one that was not asked for the longest is abandoned first."""

    def __init__(self, settings: Settings) -> None:
        most, most_bytes = settings.integer("engine.cache_programs"), settings.integer("engine.cache_programs_bytes")
        self._small: Kept[str, Program] = Kept(most, most_bytes, _size)
        self._large: Kept[str, Program] = Kept(most, most_bytes, _size)

    def get(self, digest: str) -> Program | None:
        return self._small.get(digest) or self._large.get(digest)

    def keep(self, program: Program) -> Program:
        """Keep a program; the one that is kept now, when there was one already."""
        return self.get(program.digest) or self._side(program).put(program.digest, program)

    def has_given_up(self, program: Program) -> bool:
        """Whether it is a large one that is no longer kept."""
        return program.size >= LARGE and program.digest not in self._large

    def _side(self, program: Program) -> Kept[str, Program]:
        return self._large if program.size >= LARGE else self._small


def _size(program: Program) -> int:
    return program.size
