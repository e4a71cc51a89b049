"""`choose`, `while` and `until`: blocks of a task list that guard the tasks inside them.

They add no task. The name of a block is its word and its number in the step, in reading order: `while_1`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct

from arclog.model.data.shapes import Field
from arclog.playbook.document import Path
from arclog.playbook.walk import Walker

SUGAR = ("choose", "while", "until")

ROUNDS = (
    Field("when", "condition", "Asked before each round (while) or after it (until).", required=True),
    Field("do", "list", "The tasks of one round.", required=True),
    Field("max", "integer", "Most rounds; one more fails the pipeline.", minimum=1),
)
BRANCH = (
    Field("when", "condition", "The branch's condition.", required=True),
    Field("then", "list", "Its tasks.", required=True),
)
ELSE = (
    Field("else", "list|object|null", "Tasks when no condition held.", required=True),
    Field("then", "list", "Its tasks."),
)


class Entry(Struct):
    """One task of a list as the author wrote it."""

    label: str
    path: Path
    raw: dict[str, Any]


class Part(Struct):
    """Tasks of a block, and their condition; `when` None is the else."""

    when: str | bool | None
    items: list[Entry | Group]
    #: path of the map that has the condition
    path: Path


class Group(Struct):
    """A block whose tasks have not been read yet."""

    word: str
    name: str
    parts: list[Part]
    most: int | None
    path: Path


class BlockReader:
    """Reads the task list of one step."""

    def __init__(self, walker: Walker) -> None:
        self.walker = walker
        self.numbers: Counter[str] = Counter()

    def read(self, items: list[Any], path: Path, indexes: tuple[int, ...] = ()) -> list[Entry | Group]:
        """Return the tasks of a list in order, with the blocks among them."""
        read: list[Entry | Group] = []
        for index, item in enumerate(items):
            item_path, place = (*path, index), (*indexes, index)
            if not isinstance(item, dict):
                self.walker.walk(item, Field("task", "object"), item_path, "task")
                continue
            word = next((word for word in SUGAR if word in item), None)
            if word is None or "kind" in item:
                name = item.get("name")
                label = name if isinstance(name, str) and name else "task_" + "_".join(map(str, place))
                read.append(Entry(label, item_path, item))
                continue
            allowed = (Field(word, "any", required=True), Field("desc", "string"))
            self.walker.keys(item, allowed, item_path, word)
            self.numbers[word] += 1
            group = Group(word, f"{word}_{self.numbers[word]}", [], None, (*item_path, word))
            if word == "choose":
                self._choose(group, item[word], place)
            else:
                self._rounds(group, item[word], place)
            read.append(group)
        return read

    def _choose(self, group: Group, ladder: Any, place: tuple[int, ...]) -> None:
        branches = Field("choose", "list", items=Field("branch", "object"))
        if not self.walker.walk(ladder, branches, group.path, "choose"):
            return
        for number, branch in enumerate(ladder):
            branch_path = (*group.path, number)
            is_else = "else" in branch
            if not self.walker.keys(branch, ELSE if is_else else BRANCH, branch_path, "branch"):
                continue
            if is_else and number < len(ladder) - 1:
                self.walker.findings.key(
                    "else-not-last", "else must be the last branch", (*branch_path, "else"), "move it to the end"
                )
            tasks, where = _tasks_of(branch, branch_path, is_else=is_else)
            if not self.walker.walk(tasks, Field("then", "list"), where, "branch.else" if is_else else "branch.then"):
                continue
            body = self.read(tasks, where, (*place, number))
            group.parts.append(Part(None if is_else else branch["when"], body, branch_path))

    def _rounds(self, group: Group, raw: Any, place: tuple[int, ...]) -> None:
        if not self.walker.walk(raw, Field(group.word, "object", fields=ROUNDS), group.path, group.word):
            return
        group.most = raw.get("max")
        body = self.read(raw["do"], (*group.path, "do"), place)
        group.parts.append(Part(raw["when"], body, group.path))


def _tasks_of(branch: dict[str, Any], path: Path, *, is_else: bool) -> tuple[Any, Path]:
    """Return the task list of a branch: under `then`, or under `else` in any of its spellings."""
    where: Path = (*path, "then")
    tasks = branch.get("then", [])
    if is_else and branch["else"] is not None:
        tasks, where = branch["else"], (*path, "else")
        if isinstance(tasks, dict) and set(tasks) == {"then"}:
            tasks, where = tasks["then"], (*where, "then")
    return tasks, where
