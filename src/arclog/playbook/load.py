"""Loads YAML text as plain values, with the location of every key and value.

Invariants: the result is JSON-like data only (YAML 1.2 core scalars, no tags, no merge keys); every error is a
`PlaybookError` with its location; parsing uses an explicit stack, so deep nesting ends at a limit.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

import yaml

from arclog.model.config.settings import Settings
from arclog.model.data.lazy import pattern
from arclog.model.errors import NOWHERE, Finding, PlaybookError, Position
from arclog.playbook.document import Document, lines_of

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = pattern(r"[-+]?(0|[1-9][0-9]*)\Z")
_BASED = pattern(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = pattern(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = pattern(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_NUMBER_STARTS = frozenset("0123456789+-.")
_INT_LOW, _INT_HIGH = -(2**63), 2**63 - 1
#: Maximum number of findings of one file; further ones would only repeat.
_MOST_FINDINGS = 200
_REFUSED: Any = object()


def load(text: str | bytes, file: str, settings: Settings | None = None) -> Document:
    """Read one YAML document. Raises PlaybookError with all errors."""
    settings = settings or Settings()
    source = _decoded(text, file, settings.integer("playbook.max_bytes"))
    reader = _Reader(source, file, settings.integer("playbook.max_nodes"), settings.integer("playbook.max_depth"))
    try:
        return reader.read()
    except yaml.YAMLError as error:
        raise PlaybookError([*reader.findings, _syntax(error, source)], source, file) from None


def _decoded(text: str | bytes, file: str, most: int) -> str:
    size = len(text)
    if size > most:
        raise _refusal(
            "yaml-too-large", f"the file has {size:,} bytes; the limit is {most:,} (playbook.max_bytes)", file=file
        )
    if isinstance(text, bytes):
        if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise _refusal(
                "yaml-encoding", "the file is UTF-16; playbooks are UTF-8", file=file, hint="save the file as UTF-8"
            )
        body = text
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError as error:
            before = body[: error.start].decode("utf-8", "replace")
            message = f"byte 0x{body[error.start]:02x} is not UTF-8 ({error.reason})"
            shown = body.decode("utf-8", "replace")
            raise _refusal("yaml-encoding", message, _end_of(before), shown, file, "save the file as UTF-8") from None
    else:
        try:
            size = len(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            at = _end_of(text[: error.start])
            shown = text.encode("utf-8", "replace").decode("utf-8")
            raise _refusal(
                "yaml-encoding", "the text holds half a surrogate pair, which is not Unicode", at, shown, file
            ) from None
        if size > most:
            message = f"the file has {size:,} bytes; the limit is {most:,} (playbook.max_bytes)"
            raise _refusal("yaml-too-large", message, file=file)
    return text.removeprefix("\ufeff")


def _refusal(
    code: str, message: str, at: Position = NOWHERE, source: str = "", file: str = "", hint: str = ""
) -> PlaybookError:
    return PlaybookError([Finding(code, message, at, hint=hint)], source, file)


def _end_of(text: str) -> Position:
    lines = lines_of(text)
    return Position(len(lines), len(lines[-1]) + 1)


def _syntax(error: yaml.YAMLError, source: str) -> Finding:
    """Return libyaml's error as a finding."""
    if isinstance(error, yaml.reader.ReaderError):
        # PyYAML counts bytes here in C and characters in Python; for an ASCII prefix they are the same.
        before = source.encode("utf-8")[: error.position].decode("utf-8", "ignore")
        character = error.character if isinstance(error.character, int) else ord(str(error.character)[:1] or "\0")
        message = f"character U+{character:04X} is not allowed in a playbook"
        return Finding(
            "yaml-syntax", message, _end_of(before), hint="remove it, or write it as an escape inside double quotes"
        )
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    context = getattr(error, "context", None)
    at = NOWHERE if mark is None else Position(mark.line + 1, mark.column + 1)
    began = getattr(error, "context_mark", None)
    where = f" {context}" if context else ""
    if began is not None and began.line + 1 != at.line:
        where += f" (begun at {began.line + 1}:{began.column + 1})"
    return Finding("yaml-syntax", f"not YAML: {problem}{where}", at, hint=_syntax_hint(source, at, problem))


def _syntax_hint(source: str, at: Position, problem: str) -> str:
    lines = lines_of(source)
    line = lines[at.line - 1] if 0 < at.line <= len(lines) else ""
    if "\t" in line[: at.column]:
        return "YAML is indented with spaces; there is a tab in this line"
    if re.search(r"[:\-]\s+\{[{%]", line):
        return 'quote a value that starts with a template: "{{ … }}"'
    character = line[at.column - 1 : at.column]
    if "cannot start any token" in problem and character in ("@", "`", "%"):
        return f"quote a value that starts with {character}"
    if "mapping values are not allowed" in problem:
        return "quote a text that contains ': ', or look for a wrong indentation in this line and the one above"
    if "end of stream" in problem:
        return "a quote or bracket is opened and never closed"
    if "did not find expected '-'" in problem or "did not find expected key" in problem:
        return "indent it like the keys or dashes above that it belongs to"
    return ""


class _Frame:
    """An open map or list."""

    __slots__ = (
        "anchor",
        "at",
        "children",
        "flow",
        "height",
        "is_map",
        "key",
        "key_at",
        "keys",
        "seen",
        "started",
        "values",
    )

    def __init__(self, is_map: bool, at: tuple[int, int], anchor: str | None, seen: int, flow: bool) -> None:
        self.is_map = is_map
        self.at = at
        self.anchor = anchor
        #: number of nodes before it, for the size of its anchor
        self.seen = seen
        self.flow = flow
        self.values: Any = {} if is_map else []
        self.children: Any = {} if is_map else []
        self.keys: dict[str, tuple[int, int]] = {}
        #: whether a key was read and its value comes next
        self.started = False
        self.key: Any = None
        self.key_at = at
        #: number of levels below this one
        self.height = 0


class _Reader:
    """Builds values and marks from parser events with an explicit stack."""

    def __init__(self, source: str, file: str, max_nodes: int, max_depth: int) -> None:
        self.source = source
        self.file = file
        self.max_nodes = max_nodes
        self.max_depth = max_depth
        self.findings: list[Finding] = []
        #: anchor -> (value, marks, nodes, height); None while it is open
        self.anchors: dict[str, tuple[Any, Any, int, int] | None] = {}
        self.nodes = 0
        #: whether the last scalar had no quotes
        self.plain = False

    def read(self) -> Document:
        stack: list[_Frame] = []
        documents = 0
        root: Any = None
        marks: Any = (1, 1)
        next_event = _PARSER(self.source).get_event
        event_types = yaml.events
        scalar, alias = event_types.ScalarEvent, event_types.AliasEvent
        map_start, list_start = event_types.MappingStartEvent, event_types.SequenceStartEvent
        map_end, list_end = event_types.MappingEndEvent, event_types.SequenceEndEvent
        while True:
            event = next_event()
            kind = type(event)
            start = event.start_mark
            height = 0
            if kind is scalar:
                mark: Any = (start.line + 1, start.column + 1)
                value = self.scalar(event, mark)
                self.count(1, mark)
                if event.anchor is not None:
                    self.anchors[event.anchor] = (value, mark, 1, 0)
            elif kind is map_start or kind is list_start:
                at = (start.line + 1, start.column + 1)
                self.count(1, at)
                if len(stack) >= self.max_depth:
                    raise self.stopped(
                        "yaml-too-deep", f"nested more than {self.max_depth} levels deep (playbook.max_depth)", at
                    )
                if event.tag is not None:
                    self.tag(event.tag, at)
                if event.anchor is not None:
                    self.anchors[event.anchor] = None
                stack.append(_Frame(kind is map_start, at, event.anchor, self.nodes, bool(event.flow_style)))
                continue
            elif kind is map_end or kind is list_end:
                frame = stack.pop()
                value, height = frame.values, frame.height + 1
                at = frame.at
                mark = (*at, frame.keys, frame.children) if frame.is_map else (*at, frame.children)
                if frame.anchor is not None:
                    self.anchors[frame.anchor] = (value, mark, self.nodes - frame.seen + 1, height)
            elif kind is alias:
                at = (start.line + 1, start.column + 1)
                value, mark, height = self.aliased(event.anchor, at, len(stack))
            elif kind is event_types.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    at = (start.line + 1, start.column + 1)
                    raise self.stopped("yaml-documents", "a second YAML document starts here; a playbook file contains one", at,
                              "put each playbook into a separate file")  # fmt: skip
                continue
            elif kind is event_types.StreamEndEvent:
                break
            else:
                continue
            if not stack:
                root, marks = value, mark
                continue
            self.place(stack[-1], value, mark, height)
        if root is None and not self.findings:
            at = (marks[0], marks[1])
            self.add(
                "yaml-empty",
                "the playbook is empty",
                at,
                "a playbook has at least metadata: {name: …} and workflow: [...]",
            )
        if self.findings:
            raise PlaybookError(self.findings, self.source, self.file)
        return Document(root, marks, self.source, self.file)

    def place(self, frame: _Frame, value: Any, mark: Any, height: int) -> None:
        """Add a finished value to the open container."""
        frame.height = max(frame.height, height)
        if not frame.is_map:
            frame.values.append(value)
            frame.children.append(mark)
        elif not frame.started:
            frame.started = True
            frame.key_at = (mark[0], mark[1])
            frame.key = self.key(frame, value, frame.key_at)
        else:
            frame.started = False
            key = frame.key
            if key is _REFUSED:
                return
            frame.values[key] = value
            frame.keys[key] = frame.key_at
            frame.children[key] = mark

    def key(self, frame: _Frame, value: Any, at: tuple[int, int]) -> Any:
        if not isinstance(value, str):
            if isinstance(value, dict) and frame.flow:
                self.add("yaml-key", "a map cannot be a key", at, 'quote a template: "{{ … }}"')
            elif value is not _REFUSED:
                shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else value
                problem = (
                    f"{_noun(value)} cannot be a key"
                    if isinstance(value, (dict, list))
                    else f"key {shown} is {_noun(value)}, keys are texts"
                )
                self.add("yaml-key", problem, at, "quote it" if not isinstance(value, (dict, list)) else "")
            return _REFUSED
        if value in frame.keys:
            line, column = frame.keys[value]
            self.add(
                "yaml-duplicate-key",
                f"key {value!r} occurs twice in this map, first at {line}:{column}",
                at,
                "remove one of them",
            )
            return _REFUSED
        if value == "<<" and self.plain:
            self.add(
                "yaml-merge-key",
                "merge keys (<<) are not part of YAML 1.2",
                at,
                "write the keys out, or use an alias for the whole value",
            )
            return _REFUSED
        return value

    def scalar(self, event: Any, at: tuple[int, int]) -> Any:
        if event.tag is not None:
            self.tag(event.tag, at)
            return _REFUSED
        text: str = event.value
        self.plain = not event.style
        if event.style or not event.implicit[0]:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if text[0] not in _NUMBER_STARTS:
            return text
        if _INT.match(text):
            if len(text) > 20 or not _INT_LOW <= int(text) <= _INT_HIGH:
                self.add("yaml-number", "this integer does not fit into 64 bits", at, "quote it to keep it as text")
                return _REFUSED
            return int(text)
        if _FLOAT.match(text):
            number = float(text)
            if not isfinite(number):
                self.add("yaml-number", f"{text[:40]} is too large for a number", at, "quote it to keep it as text")
                return _REFUSED
            return number
        if _BASED.match(text):
            if len(text) > 24 or (number := int(text, 0)) > _INT_HIGH:
                self.add("yaml-number", "this integer does not fit into 64 bits", at, "quote it to keep it as text")
                return _REFUSED
            return number
        if _NOT_FINITE.match(text):
            self.add("yaml-number", f"{text} is not JSON number", at, "quote it to keep it as text")
            return _REFUSED
        return text

    def tag(self, tag: str, at: tuple[int, int]) -> None:
        name = tag.replace("tag:yaml.org,2002:", "!!")
        self.add(
            "yaml-tag",
            f"the tag {name[:80]} is not allowed; playbooks are plain data",
            at,
            "remove the tag; quote a value to make it text",
        )

    def aliased(self, anchor: str, at: tuple[int, int], depth: int) -> tuple[Any, Any, int]:
        if anchor not in self.anchors:
            self.add("yaml-alias", f"the alias *{anchor} has no anchor &{anchor} before it", at)
            return _REFUSED, at, 0
        target = self.anchors[anchor]
        if target is None:
            raise self.stopped("yaml-alias", f"the alias *{anchor} refers to itself", at, "a value cannot hold itself")
        value, mark, nodes, height = target
        self.count(nodes, at)
        if depth + height > self.max_depth:
            raise self.stopped(
                "yaml-too-deep",
                f"with *{anchor} put in, nested more than {self.max_depth} levels deep (playbook.max_depth)",
                at,
            )
        return value, (*at, *mark[2:]), height

    def count(self, nodes: int, at: tuple[int, int]) -> None:
        self.nodes += nodes
        if self.nodes > self.max_nodes:
            raise self.stopped(
                "yaml-too-many-nodes",
                f"more than {self.max_nodes:,} values, aliases counted as often as used (playbook.max_nodes)",
                at,
            )

    def add(self, code: str, message: str, at: tuple[int, int], hint: str = "") -> None:
        self.findings.append(Finding(code, message, Position(*at), hint=hint))
        if len(self.findings) >= _MOST_FINDINGS:
            raise PlaybookError(self.findings, self.source, self.file)

    def stopped(self, code: str, message: str, at: tuple[int, int], hint: str = "") -> PlaybookError:
        """Return the error for a finding after which reading cannot continue."""
        self.findings.append(Finding(code, message, Position(*at), hint=hint))
        return PlaybookError(self.findings, self.source, self.file)


def _noun(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    return "a map" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a text"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and no anchors."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value and not any(line.endswith((" ", "\t")) for line in value.split("\n")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(value: Any) -> str:
    """Return the YAML text, with keys in their order."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text
