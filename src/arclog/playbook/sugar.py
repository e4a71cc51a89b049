"""`choose`, `while` and `until`: author's constructs that become canonical jump tasks.

Every branch ends in a jump to one merge point, so nothing falls through. Generated labels begin with `_`, count the
constructs of a step in reading order, and carry the author's line as their origin.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct

from arclog.model.kinds import KindSpec
from arclog.model.shapes import Field
from arclog.playbook.canon import Rule, Task
from arclog.playbook.document import Path
from arclog.playbook.walk import Walker

SUGAR = ("choose", "while", "until")
#: What a generated task is, when the kinds hold no `noop`.
NOOP = KindSpec("noop", "Does nothing.", effectful=False)

_ROUNDS = (
    Field("when", "condition", "Asked before each round (while) or after it (until).", required=True),
    Field("do", "list", "The tasks of one round.", required=True),
    Field("max", "integer", "Most rounds; one more fails the pipeline.", minimum=1),
)
_BRANCH = (
    Field("when", "condition", "The branch's condition.", required=True),
    Field("then", "list", "Its tasks.", required=True),
)
_ELSE = (
    Field("else", "list|object|null", "Tasks when no condition held.", required=True),
    Field("then", "list", "Its tasks."),
)


class Entry(Struct):
    """One place of a flat task list: what the author wrote, or a finished generated task."""

    label: str
    path: Path
    raw: dict[str, Any] | None = None
    made: Task | None = None


class Expander:
    """Flattens the task list of one step."""

    def __init__(self, walker: Walker, noop: KindSpec | None) -> None:
        self.walker = walker
        self.noop = noop or NOOP
        self.numbers: Counter[str] = Counter()

    def expand(self, items: list[Any], path: Path, indexes: tuple[int, ...] = ()) -> list[Entry]:
        entries: list[Entry] = []
        for index, item in enumerate(items):
            here, place = (*path, index), (*indexes, index)
            if not isinstance(item, dict):
                self.walker.walk(item, Field("task", "object"), here, "task")
                continue
            sugar = next((word for word in SUGAR if word in item), None)
            if sugar is None or "kind" in item:
                named = item.get("name")
                label = named if isinstance(named, str) and named else "task_" + "_".join(map(str, place))
                entries.append(Entry(label, here, raw=item))
                continue
            known = (Field(sugar, "any", required=True), Field("desc", "string"))
            self.walker.keys(item, known, here, sugar)
            self.numbers[sugar] += 1
            head = f"_{sugar}_{self.numbers[sugar]}"
            if sugar == "choose":
                entries += self.choose(item[sugar], (*here, sugar), head, place)
            else:
                entries += self.rounds(sugar, item[sugar], (*here, sugar), head, place)
        return entries

    def choose(self, ladder: Any, path: Path, head: str, place: tuple[int, ...]) -> list[Entry]:
        """A head that jumps to the branch that holds; each branch jumps to the end."""
        if not self.walker.walk(ladder, Field("choose", "list", items=Field("branch", "object")), path, "choose"):
            return []
        end = f"{head}_end"
        rules: list[Rule] = []
        bodies: list[Entry] = []
        fallback = Rule(None, {"do": "jump", "to": end}, path, path)
        for number, branch in enumerate(ladder):
            here = (*path, number)
            is_else = "else" in branch
            if not self.walker.keys(branch, _ELSE if is_else else _BRANCH, here, "branch"):
                continue
            if is_else and number < len(ladder) - 1:
                self.walker.findings.key("else-not-last", "else must be the last branch", (*here, "else"))
            tasks, where = self.branch_tasks(branch, here, is_else=is_else)
            body = self.expand(tasks, where, (*place, number))
            first = body[0].label if body else end
            rule = Rule(None if is_else else branch["when"], {"do": "jump", "to": first}, here, here)
            if is_else:
                fallback = rule
            else:
                rules.append(rule)
            bodies += body
            if body:
                jump = Rule(None, {"do": "jump", "to": end}, here, here)
                bodies.append(self.task(f"{head}_{number + 1}_end", here, "choose", path, [jump]))
        return [self.task(head, path, "choose", path, [*rules, fallback]), *bodies, self.merge(end, "choose", path)]

    def branch_tasks(self, branch: dict[str, Any], here: Path, *, is_else: bool) -> tuple[list[Any], Path]:
        """The task list of a branch: under `then`, or under `else` in any of its spellings."""
        where: Path = (*here, "then")
        tasks = branch.get("then")
        if is_else and branch["else"] is not None:
            tasks, where = branch["else"], (*here, "else")
            if isinstance(tasks, dict) and set(tasks) == {"then"}:
                tasks, where = tasks["then"], (*where, "then")
        return (tasks if isinstance(tasks, list) else []), where

    def rounds(self, word: str, body: Any, path: Path, head: str, place: tuple[int, ...]) -> list[Entry]:
        """`while`: check, round, body, back. `until`: round, body, check, back."""
        if not self.walker.walk(body, Field(word, "object", fields=_ROUNDS), path, word):
            return []
        end, check = f"{head}_end", f"{head}_check"
        tasks = self.expand(body["do"], (*path, "do"), place)
        most = body.get("max")
        counter = head
        begin: list[Entry] = []
        count: list[Entry] = []
        if most is not None:
            begin = [
                self.task(
                    f"{head}_begin", path, word, path, [_rule({"do": "continue", "set_iter": {counter: 0}}, path)]
                )
            ]
            over = Rule(f"{{{{ iter['{counter}'] | default(0) >= {most} }}}}", {"do": "fail"}, path, path)
            again = _rule(
                {"do": "continue", "set_iter": {counter: f"{{{{ (iter['{counter}'] | default(0)) + 1 }}}}"}}, path
            )
            said = f"still {'true' if word == 'while' else 'not true'} after max: {most} rounds"
            count = [self.task(f"{head}_round", path, word, path, [over, again], said)]
        when = body["when"]
        if word == "while":
            first = (count or tasks or [Entry(f"{head}_back", path)])[0].label
            checks = [Rule(when, {"do": "jump", "to": first}, path, path), _rule({"do": "jump", "to": end}, path)]
            back = self.task(f"{head}_back", path, word, path, [_rule({"do": "jump", "to": check}, path)])
            return [
                *begin,
                self.task(check, path, word, path, checks),
                *count,
                *tasks,
                back,
                self.merge(end, word, path),
            ]
        first = (count or tasks or [Entry(check, path)])[0].label
        checks = [Rule(when, {"do": "jump", "to": end}, path, path), _rule({"do": "jump", "to": first}, path)]
        return [*begin, *count, *tasks, self.task(check, path, word, path, checks), self.merge(end, word, path)]

    def merge(self, label: str, word: str, path: Path) -> Entry:
        return self.task(label, path, word, path, [_rule({"do": "continue"}, path)])

    def task(self, label: str, path: Path, word: str, author: Path, rules: list[Rule], said: str = "") -> Entry:
        at = self.walker.findings.document.key_at(author)
        origin = f"{word} at {at}{': ' + said if said else ''}"
        return Entry(label, path, made=Task(label, self.noop, {}, path, rules=rules, origin=origin))


def _rule(then: dict[str, Any], path: Path) -> Rule:
    return Rule(None, then, path, path)
