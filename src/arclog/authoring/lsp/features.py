"""Features for editors: answers about a place in a playbook's text. No I/O.

A text that is being typed is seldom valid YAML, so the context of a place is determined from the indentation of the
lines above it, not from a tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from arclog.authoring.playbook_files import FilesBeside
from arclog.authoring.spans import column_of, compose, entries, entry, items, line_of, scalar
from arclog.expr.filters.reference import FILTERS, FUNCTIONS, TESTS, Entry
from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.model.data.shapes import Field
from arclog.model.errors import Finding
from arclog.plan.build import build
from arclog.plan.lint.check import SCOPES
from arclog.playbook.engine_kinds import ENGINE_KINDS
from arclog.playbook.schema import ACTIONS, TASK, root_field, task_spec_fields

_KEY = re.compile(r"^(\s*)((?:- +)*)(?:([\w.-]+)\s*:)?")
_WORD = re.compile(r"[\w.]+")


class Place(NamedTuple):
    """A line and column from 1."""

    line: int
    column: int


class Candidate(NamedTuple):
    """A completion at a place."""

    word: str
    doc: str = ""


class Features:
    """Answers about one text."""

    def __init__(self, text: str, file: str, kinds: Mapping[str, KindSpec], settings: Settings | None = None) -> None:
        self.text = text
        self.file = file
        self.kinds = {**ENGINE_KINDS, **{name: kinds[name] for name in kinds}}
        self._given = kinds
        self.settings = settings
        self.lines = text.split("\n")
        self.root = compose(text)

    def findings(self) -> list[Finding]:
        """The findings of `arclog check`."""
        beside = FilesBeside(self.settings or Settings()).of(self.file)
        return build(self.text, self.file, self._given, self.settings, beside, thorough=True).findings

    # --- completion -------------------------------------------------------------------------------------------------

    def complete(self, at: Place) -> list[Candidate]:
        """The completions at a place."""
        before = self.line(at.line)[: at.column - 1]
        if before.rfind("{{") > before.rfind("}}"):
            return self.names(before)
        value = re.search(r"(?:^|[\s{,])(kind|step|entry_step|auth|to|do|mode)\s*:\s*\"?([\w.]*)$", before)
        if value is not None:
            return self.values(value[1], at)
        if re.match(r"^\s*(?:- +)*[\w-]*$", before):
            own = {match[3] for match in map(_KEY.match, self.siblings(at)) if match and match[3]}
            return [Candidate(field.name, field.doc) for field in self.fields(self.chain(at)) if field.name not in own]
        return []

    def values(self, key: str, at: Place) -> list[Candidate]:
        if key == "kind":
            return [Candidate(name, kind.summary) for name, kind in self.kinds.items()]
        if key in ("step", "entry_step"):
            return [Candidate(name) for name in self.steps()]
        if key == "auth":
            return [
                Candidate(name) for node in items(entry(self.root, "keychain")) if (name := scalar(entry(node, "name")))
            ]
        if key == "do":
            return [Candidate(action) for action in ACTIONS]
        if key == "mode":
            field = next((field for field in self.fields(self.chain(at)) if field.name == "mode"), None)
            return [Candidate(choice) for choice in (field.choices or ())] if field is not None else []
        step = self.step_at(at.line)
        return [Candidate(name) for task in items(entry(step, "tool")) if (name := scalar(entry(task, "name")))]

    def names(self, before: str) -> list[Candidate]:
        """Names of templates."""
        begun = re.search(r"([\w.]*)$", before)
        head, dot, _ = (begun[1] if begun else "").rpartition(".")
        if dot and head == "workload":
            return [Candidate(name) for name, _, _ in entries(entry(self.root, "workload"))]
        if dot and head == "keychain":
            return [
                Candidate(name) for node in items(entry(self.root, "keychain")) if (name := scalar(entry(node, "name")))
            ]
        if dot and head == "iter":
            loops = [entry(node, "loop", "iterator") for node in items(entry(self.root, "workflow"))]
            return [Candidate(name) for name in (*filter(None, map(scalar, loops)), "index", "total", "parent")]
        if dot and (head == "outcome" or head in self.steps()):
            return [Candidate(name) for name in ("status", "data", "result", "error", "meta")]
        if dot and head.endswith(".error"):
            return [Candidate(name) for name in ("kind", "message", "code", "retryable")]
        if dot and head == "event":
            return [Candidate(name) for name in ("name", "step", "status", "timestamp", "payload")]
        if dot:
            return []
        if before.rstrip().endswith("|") or re.search(r"\|\s*\w+$", before):
            return [Candidate(row.name, row.summary) for table in FILTERS.values() for row in table]
        scope_names = sorted({name for names in SCOPES.values() for name in names})
        return [*(Candidate(name) for name in scope_names), *(Candidate(name, "a step") for name in self.steps())]

    # --- hover and definition -----------------------------------------------------------------------------------------

    def hover(self, at: Place) -> str:
        """The description of the word at a place; '' if there is none."""
        word = self.word(at)
        if not word:
            return ""
        line = self.line(at.line)
        chain = self.chain_of_key(at)
        if chain is not None:
            field = next((field for field in self.fields(chain) if field.name == word), None)
            if field is not None:
                default = f"\n\nDefault: `{field.default}`" if field.default is not None else ""
                choices = f"\n\nOne of {', '.join(f'`{choice}`' for choice in field.choices)}" if field.choices else ""
                return f"**{word}** ({field.type}): {field.doc}{default}{choices}"
        entry_of_word = self.of_language(at, word)
        if entry_of_word is not None:
            return f"**{entry_of_word.call}**: {entry_of_word.summary}\n\n`{entry_of_word.example}` → `{entry_of_word.value!r}`"
        if re.search(rf"kind\s*:\s*\"?{re.escape(word)}\b", line) and word in self.kinds:
            return f"**{word}**: {self.kinds[word].summary}"
        name = word.split(".")[0]
        step = self.steps().get(name)
        if step is not None:
            desc = scalar(entry(step, "desc"))
            return f"step **{name}**, line {line_of(step)}" + (f": {desc}" if desc else "")
        return ""

    def of_language(self, at: Place, word: str) -> Entry | None:
        """Return the filter, test or function of templates that a word names, depending on the text before it."""
        line = self.line(at.line)
        start = next(
            (match.start() for match in _WORD.finditer(line) if match.start() < at.column <= match.end() + 1), 0
        )
        before = line[:start]
        if before.rfind("{{") <= before.rfind("}}"):
            return None
        if before.rstrip().endswith("|"):
            tables: Iterable[Sequence[Entry]] = FILTERS.values()
        elif re.search(r"\bis(\s+not)?\s+$", before):
            tables = [TESTS]
        elif line[start + len(word) :].lstrip().startswith("("):
            tables = [FUNCTIONS]
        else:
            return None
        return next((row for table in tables for row in table if row.name == word), None)

    def chain_of_key(self, at: Place) -> list[str] | None:
        """Return the keys above the key at a place; None if there is no key."""
        match = _KEY.match(self.line(at.line))
        if match is not None and match[3] and match.start(3) < at.column <= match.end(3) + 1:
            return self.chain(Place(at.line, match.start(3) + 1))
        pending: list[tuple[Any, list[str]]] = [(self.root, [])]
        seen: set[int] = set()
        while pending:
            node, above = pending.pop()
            if id(node) in seen:  # the target of an alias; nested aliases can expand to very much
                continue
            seen.add(id(node))
            for name, key, value in entries(node):
                if line_of(key) == at.line and column_of(key) < at.column <= column_of(key) + len(name) + 1:
                    return above
                pending.append((value, [*above, name]))
            pending += [(item, [*above, "-"]) for item in items(node)]
        return None

    def definition(self, at: Place) -> Place | None:
        """The definition of the step, task or workload key at a place."""
        parts = self.word(at).split(".")
        if parts[0] == "workload" and len(parts) > 1:
            for name, key, _ in entries(entry(self.root, "workload")):
                if name == parts[1]:
                    return Place(line_of(key), column_of(key) + 1)
        for task in items(entry(self.step_at(at.line), "tool")):
            name = entry(task, "name")
            if scalar(name) == parts[0] and line_of(name) != at.line:
                return Place(line_of(name), column_of(name) + 1)
        step = self.steps().get(parts[0])
        if step is not None:
            name = entry(step, "step")
            return Place(line_of(name), column_of(name) + 1)
        for entry_node in items(entry(self.root, "keychain")):
            name = entry(entry_node, "name")
            if scalar(name) in parts[:2]:
                return Place(line_of(name), column_of(name) + 1)
        return None

    # --- the text -----------------------------------------------------------------------------------------------------

    def steps(self) -> dict[str, Any]:
        """Step maps by name; from the lines alone when the text is not YAML just now."""
        steps = {name: node for node in items(entry(self.root, "workflow")) if (name := scalar(entry(node, "step")))}
        if self.root is None:
            for line in self.lines:
                if match := re.match(r"^\s*- +step\s*:\s*\"?(\w+)", line):
                    steps[match[1]] = None
        return steps

    def step_at(self, line: int) -> Any:
        """Return the step map that contains a line."""
        before = [node for node in items(entry(self.root, "workflow")) if line_of(node) <= line]
        return before[-1] if before else None

    def line(self, number: int) -> str:
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def word(self, at: Place) -> str:
        for match in _WORD.finditer(self.line(at.line)):
            if match.start() < at.column <= match.end() + 1:
                # `a.b` with the cursor on `a` means a.
                stop = self.line(at.line).find(".", at.column - 1, match.end())
                return match.group() if stop < 0 else self.line(at.line)[match.start() : stop]
        return ""

    def chain(self, at: Place) -> list[str]:
        """Return the keys above a place, from the root; a list is `-`."""
        line = self.line(at.line)
        match = _KEY.match(line)
        if match is None:
            return []
        room = len(match[1]) + len(match[2])
        if not line.strip():
            room = min(at.column - 1, len(line)) if line else at.column - 1
        chain: list[str] = ["-"] if match[2] else []
        dash = len(match[1]) if match[2] else room
        limit = dash if match[2] else room
        for number in range(at.line - 1, 0, -1):
            above = _KEY.match(self.line(number))
            if above is None or not self.line(number).strip() or self.line(number).lstrip().startswith("#"):
                continue
            key_at = len(above[1]) + len(above[2])
            if key_at < limit and above[3]:
                chain.append(above[3])
                limit = key_at
                if above[2]:
                    chain.append("-")
                    limit = len(above[1])
            elif above[2] and len(above[1]) < limit <= key_at:
                chain.append("-")
                limit = len(above[1])
            if limit == 0:
                break
        return chain[::-1]

    def siblings(self, at: Place) -> list[str]:
        """Return the other lines of the map that contains a place, approximately."""
        key = _KEY.match(self.line(at.line))
        room = len(key[1]) + len(key[2]) if key and self.line(at.line).strip() else at.column - 1
        siblings: list[str] = []
        for step in (-1, 1):
            number = at.line + step
            while 0 < number <= len(self.lines):
                match = _KEY.match(self.line(number))
                own = len(match[1]) + len(match[2]) if match else 0
                if self.line(number).strip() and own < room:
                    break
                if step > 0 and match is not None and match[2] and own == room:
                    break
                if own == room:
                    siblings.append(self.line(number))
                    if match is not None and match[2]:
                        break
                number += step
        return siblings

    def fields(self, chain: list[str]) -> tuple[Field, ...]:
        """The keys that a map below some keys may have."""
        field: Field = root_field(self.kinds)
        fields = field.fields or ()
        for index, key in enumerate(chain):
            if key == "-":
                if chain[index - 1] == "tool":
                    fields = self.task_fields()
                continue
            if key == "tool":
                fields = self.task_fields()
                continue
            matching = next((candidate for candidate in fields if candidate.name == key), None)
            if matching is None:
                return ()
            if key == "spec" and "tool" in chain[:index]:
                names: dict[str, Field] = {}
                for kind in self.kinds.values():
                    names.update({candidate.name: candidate for candidate in task_spec_fields(kind)})
                fields = (
                    *names.values(),
                    Field("policy", "object", "Rules that decide what follows the task's outcome."),
                )
                continue
            shape = matching.items if matching.items is not None and not matching.fields else matching
            fields = shape.fields or ()
        return fields

    def task_fields(self) -> tuple[Field, ...]:
        """Return the keys of tasks of the kinds that the text names."""
        mentioned = {kind for kind in self.kinds if re.search(rf"kind\s*:\s*\"?{re.escape(kind)}\b", self.text)}
        fields = {field.name: field for field in TASK}
        for kind in sorted(mentioned or self.kinds):
            for field in self.kinds[kind].fields:
                fields.setdefault(field.name, field)
        return tuple(fields.values())
