"""How many lanes of a crowded pool a claim has to see. Pure; SQL stores keep to it.

Law: of lanes that need the same, let a *turn* be those whose tenants hold equally many commands and were served equally often.
A claim of `limit` commands sees, of every turn that it visits, the first `limit + 1` by their first commands; and it visits
turns by what is held, then by what was served, until it may stop (`Visit.enough`). `choosing.chosen` then takes the same
commands as if it saw all lanes:

- In a turn, more than `limit` lanes come before any that is not seen, whatever happens, and `limit` are taken at most.
- A lane whose tenant holds more is not served while one waits whose tenant holds less and was not taken from.
- A turn that was served more comes later, unless the pool's present reaches it: then both count as equally served. Only tenants
  that hold less can bring that about; so among those that hold the least, the turns beyond the present may be left out.

One lane more than can be taken returns whether anybody else waits.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Visit:
    """A claim's way through the turns of lanes that need the same."""

    limit: int
    #: the pool's
    present: int
    #: lanes seen so far
    seen: int = 0
    _least: int | None = None
    _held: int = -1

    @property
    def most(self) -> int:
        """Lanes to see of one turn."""
        return self.limit + 1

    def enough(self, held: int, served: int) -> bool:
        """Whether this turn and all after it need not be seen."""
        if self._least is None:
            self._least = held
        if self.seen > self.limit:
            return held != self._held or (held == self._least and served > self.present)
        return False

    def note(self, held: int, count: int) -> None:
        """So many lanes of a turn were seen."""
        self._held = held
        self.seen += count
