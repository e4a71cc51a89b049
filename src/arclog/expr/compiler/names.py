"""Which variable a name in a template means, decided when it is compiled.

A name is the innermost `set` or `for` variable, else a free name that the scope must have. A variable that is set on
only some ways through the template stays free too, as in Jinja.
"""

from __future__ import annotations

from msgspec import Struct


class Variable(Struct):
    """A `set` or `for` variable: its slot, and whether every way to this point assigned it."""

    slot: int
    certain: bool


class Names:
    """The names of one template while it is compiled."""

    def __init__(self) -> None:
        #: -1: no statement can declare a variable, so a frame needs no room for any
        self.slots = -1
        self.paths: set[tuple[str, ...]] = set()
        #: the same with whole numbers among the keys: what of a value is read
        self.reads: set[tuple[str | int, ...]] = set()
        self._blocks: list[dict[str, Variable]] = [{}]

    def declare(self, name: str) -> int:
        """Note that `name` is assigned here, in the innermost block; give its slot."""
        block = self._blocks[-1]
        if name not in block:
            block[name] = Variable(self.slots, certain=True)
            self.slots += 1
        block[name].certain = True
        return block[name].slot

    def find(self, name: str) -> tuple[list[int], bool]:
        """Give the slots that may hold `name`, innermost first, and whether the scope may be asked after them."""
        slots: list[int] = []
        for block in reversed(self._blocks):
            variable = block.get(name)
            if variable is not None:
                slots.append(variable.slot)
                if variable.certain:
                    return slots, False
        return slots, True

    def enter(self) -> None:
        """Begin a block whose variables end with it."""
        self._blocks.append({})

    def leave(self) -> list[int]:
        """End a block; give its slots."""
        return [variable.slot for variable in self._blocks.pop().values()]

    def certainty(self) -> dict[str, bool]:
        """Note which variables of the innermost block are certain."""
        return {name: variable.certain for name, variable in self._blocks[-1].items()}

    def restore(self, before: dict[str, bool]) -> None:
        """Begin another branch: what only the branch before assigned is not certain in this one."""
        for name, variable in self._blocks[-1].items():
            variable.certain = before.get(name, False)

    def merge(self, branches: list[dict[str, bool]]) -> None:
        """End the branches: certain is what is certain at the end of each."""
        for name, variable in self._blocks[-1].items():
            variable.certain = all(branch.get(name, False) for branch in branches)
