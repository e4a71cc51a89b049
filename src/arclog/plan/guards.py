"""The compiled guards of a task list: the next task of a pipeline between two tasks.

A list with blocks becomes a short code. A pipeline is before its first task or after one of them, and follows the code
from there to the next task or to the end of the list; see `core.flow.pipeline`.

  choose   test (else to the next branch) · tasks · go to the end · …
  while    begin · head: test (else to the end) · round · tasks · back to the head
  until    begin · head: round · tasks · test (else to `back`) · go to the end · back: to the head

`begin` and `round` occur only if the block has a `max`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from arclog.model.data.lazy import lazy
from arclog.plan.net import Block

if TYPE_CHECKING:
    from arclog.plan.program import Condition

    #: Compiles a condition, given the path of its text in the step.
    Compile = Callable[[str | bool | None, str], Condition]


class Reach(Struct, frozen=True):
    """The pipeline has reached a task of the list."""

    index: int


class Test(Struct):
    """Continue if the condition holds, else go to `otherwise`."""

    condition: Condition
    block: Block
    otherwise: int = 0


class Go(Struct):
    to: int = 0


class Back(Struct, frozen=True):
    """Start the next round of a block."""

    to: int
    block: Block


class Begin(Struct, frozen=True):
    """Enter a block: reset its count of rounds."""

    name: str


class Round(Struct, frozen=True):
    """Count a round of a block that has a `max`."""

    block: Block
    max: int


Code = Reach | Test | Go | Back | Begin | Round


class Guards:
    """The code of one task list. Immutable."""

    def __init__(self, flow: Sequence[int | Block], tasks: int, compile_: Compile) -> None:
        self.code: list[Code] = []
        #: position in the code after each task
        self._behind = [0] * tasks
        self._compile = compile_
        self._list(flow)
        self.end = len(self.code)
        self.conditions = tuple(code.condition for code in self.code if isinstance(code, Test))
        self.names = frozenset(code.block.name for code in self.code if isinstance(code, Round))
        #: for the start and after each task: the next task (`tasks` for the end), None if a guard decides
        self._sure = [self._certain(position, tasks) for position in (0, *self._behind)]

    def position(self, at: int) -> int:
        """Return the position in the code for a pipeline that has completed `at` tasks."""
        return self._behind[at - 1] if at else 0

    def certain(self, at: int) -> int | None:
        """Return the index of the next task, or the number of tasks at the end of the list; None if guards decide."""
        return self._sure[at]

    @lazy
    def reachable(self) -> tuple[frozenset[int], ...]:
        """For each number of completed tasks: the tasks that can come next, whatever the conditions.

        The number of tasks stands for the end of the list.
        """
        return tuple(self._reached(position) for position in (0, *self._behind))

    def _reached(self, start: int) -> frozenset[int]:
        reached: set[int] = set()
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            position = waiting.pop()
            if position in seen:
                continue
            seen.add(position)
            if position >= self.end:
                reached.add(len(self._behind))
                continue
            match self.code[position]:
                case Reach(index=index):
                    reached.add(index)
                case Go(to=to) | Back(to=to):
                    waiting.append(to)
                case Test(otherwise=otherwise):
                    waiting += (position + 1, otherwise)
                case _:
                    waiting.append(position + 1)
        return frozenset(reached)

    def _certain(self, position: int, tasks: int) -> int | None:
        while position < self.end:
            code = self.code[position]
            if isinstance(code, Reach):
                return code.index
            if not isinstance(code, Go):
                return None
            position = code.to
        return tasks

    # -- compilation --------------------------------------------------------------------------------------------------

    def _add(self, code: Code) -> int:
        self.code.append(code)
        return len(self.code) - 1

    def _list(self, flow: Iterable[int | Block]) -> None:
        for item in flow:
            if isinstance(item, int):
                self._behind[item] = self._add(Reach(item)) + 1
            elif item.word == "choose":
                self._choose(item)
            else:
                self._rounds(item)

    def _tests(self, block: Block) -> Iterator[Condition]:
        for number, branch in enumerate(block.branches):
            yield self._compile(branch.when, f"flow.{block.name}.{number}.when")

    def _choose(self, block: Block) -> None:
        ends: list[Go] = []
        for branch, condition in zip(block.branches, self._tests(block), strict=True):
            test = Test(condition, block)
            if branch.when is not None:
                self._add(test)
            self._list(branch.body)
            ends.append(Go())
            self._add(ends[-1])
            test.otherwise = len(self.code)
        for end in ends:
            end.to = len(self.code)

    def _rounds(self, block: Block) -> None:
        test = Test(next(self._tests(block)), block)
        if block.max is not None:
            self._add(Begin(block.name))
        head = len(self.code)
        if block.word == "while":
            self._add(test)
        if block.max is not None:
            self._add(Round(block, block.max))
        self._list(block.branches[0].body)
        if block.word == "while":
            self._add(Back(head, block))
            test.otherwise = len(self.code)
            return
        self._add(test)
        end = Go()
        self._add(end)
        test.otherwise = self._add(Back(head, block))
        end.to = len(self.code)
