"""Reads `*.test.yaml`: the playbook, and for each test its workload, mocks, signals and expectations.

Invariant: a file is read completely or refused with all its errors; each case, mock and signal keeps its line.
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arclog.model.config.settings import Settings
from arclog.model.data.suggestions import nearest
from arclog.model.errors import Finding, PlaybookError, Position
from arclog.model.ids import micros
from arclog.model.outcome import ERROR_KINDS
from arclog.playbook.document import Document
from arclog.playbook.document import Path as DocumentPath
from arclog.playbook.load import load
from arclog.testing.virtual import START

SUFFIXES = (".test.yaml", ".test.yml")
#: Default limit of a run in virtual seconds: 400 days.
WITHIN_S = 400 * 86_400.0
#: Default time of a signal, in virtual seconds after the start.
SIGNAL_AT_S = 1.0
STATES = ("completed", "failed", "cancelled", "refused")

_FILE = frozenset({"playbook", "description", "defaults", "tests"})
_DEFAULTS = frozenset({"workload", "mocks", "signals", "keychain", "python", "now", "within_s", "expect"})
_TEST = _DEFAULTS | {"name", "skip"}
_MOCK = frozenset(
    {
        "step",
        "task",
        "item",
        "attempt",
        "with",
        "ok",
        "error",
        "result",
        "helper",
        "files",
        "real",
        "takes_s",
        "times",
        "optional",
    }
)
_SIGNAL = frozenset({"signal", "at", "step", "data", "reason", "by"})
_EXPECT = frozenset(
    {"state", "path", "not_run", "calls", "ctx", "result", "error", "events", "duration_s", "that", "snapshot"}
)
_ERROR = frozenset({"kind", "message", "code", "retryable"})


@dataclass(slots=True)
class Mock:
    """The answer of a task instead of its tool."""

    at: Position
    step: str
    task: str = ""
    #: indexes of the loop item from the outermost; None means every item
    item: tuple[int, ...] | None = None
    #: attempts that it answers; (): every attempt
    attempts: tuple[int, ...] = ()
    #: the required part of the task's rendered config
    config: dict[str, Any] = field(default_factory=dict)
    ok: Any = None
    #: the whole result, if `ok` (its payload) is not enough
    result: Any = None
    has_result: bool = False
    error: dict[str, Any] | None = None
    helper: dict[str, Any] = field(default_factory=dict)
    #: the files that its `outputs` names, by name: a text, or {base64: …}
    files: dict[str, Any] = field(default_factory=dict)
    #: run the python code of the task instead
    real: bool = False
    takes_s: float = 0.0
    #: maximum number of calls that it answers; 0 means no limit
    times: int = 0
    #: it is not an error if nothing calls it
    optional: bool = False
    #: it is under `defaults`, so that some test of the file must use it
    shared: bool = False

    def __str__(self) -> str:
        where = self.step + (f".{self.task}" if self.task else "")
        where += "" if self.item is None else f" item {'.'.join(map(str, self.item))}"
        return where + (f" attempt {', '.join(map(str, self.attempts))}" if self.attempts else "")


@dataclass(slots=True)
class SignalAt:
    """A signal that the run gets at a virtual time."""

    at: Position
    signal: str
    after_s: float = SIGNAL_AT_S
    step: str = ""
    data: Any = None
    reason: str = ""
    by: str = "test"


@dataclass(slots=True)
class Case:
    """One test."""

    name: str
    at: Position
    workload: dict[str, Any] = field(default_factory=dict)
    mocks: list[Mock] = field(default_factory=list)
    signals: list[SignalAt] = field(default_factory=list)
    keychain: dict[str, Any] = field(default_factory=dict)
    #: python tasks without a mock run their code in this process
    runs_python: bool = False
    #: virtual time at the start, microseconds since 1970
    now: int = START
    within_s: float = WITHIN_S
    expect: dict[str, Any] = field(default_factory=dict)
    #: why it is not run; '': it is
    skip: str = ""


@dataclass(slots=True)
class CaseFile:
    """The tests of one playbook."""

    file: str
    source: str
    #: path of the playbook
    playbook: str
    cases: list[Case]


def read_cases(text: str | bytes, file: str, settings: Settings | None = None) -> CaseFile:
    """Read a test file. Raises PlaybookError with every mistake in it."""
    return _Reading(load(text, file, settings), file).read()


class _Reading:
    def __init__(self, document: Document, file: str) -> None:
        self.document = document
        self.file = file
        self.findings: list[Finding] = []

    def read(self) -> CaseFile:
        root = self.keys(self.document.value, _FILE, ())
        defaults = self.keys(root.get("defaults") or {}, _DEFAULTS, ("defaults",))
        name = Path(self.file).name
        stem = next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), Path(name).stem)
        playbook = root.get("playbook", f"{stem}.yaml")
        if not isinstance(playbook, str):
            self.add("playbook is the path of a file, relative to this one", ("playbook",))
            playbook = f"{stem}.yaml"
        tests = root.get("tests")
        if not isinstance(tests, list) or not tests:
            self.add("there are no tests", ("tests",), "tests: [{name: …, expect: {state: completed}}]")
            tests = []
        shared = self.case(defaults, ("defaults",), Case("", Position()))
        for mock in shared.mocks:
            mock.shared = True
        cases: list[Case] = []
        names: set[str] = set()
        for index, raw in enumerate(tests):
            path: DocumentPath = ("tests", index)
            entry = self.keys(raw, _TEST, path)
            title = entry.get("name")
            if not isinstance(title, str) or not title.strip():
                self.add("a test needs a name", path, "name: what it shows")
                title = f"test {index + 1}"
            if title in names:
                self.add(f"two tests are called {title!r}", (*path, "name"))
            names.add(title)
            cases.append(self.case(entry, path, shared, title))
        if self.findings:
            raise PlaybookError(self.findings, self.document.source, self.file)
        where = str(Path(self.file).parent / playbook)
        return CaseFile(self.file, self.document.source, where, cases)

    def case(self, entry: dict[str, Any], path: DocumentPath, base: Case, name: str = "") -> Case:
        at = self.document.at(path)
        case = Case(name, at, mocks=list(base.mocks), signals=list(base.signals), now=base.now)
        case.workload = {**base.workload, **self.mapping(entry, "workload", path)}
        case.keychain = {**base.keychain, **self.mapping(entry, "keychain", path)}
        case.mocks[:0] = [self.mock(raw, (*path, "mocks", at)) for at, raw in self.entries(entry, "mocks", path)]
        case.signals += [self.signal(raw, (*path, "signals", at)) for at, raw in self.entries(entry, "signals", path)]
        case.runs_python = base.runs_python
        if "python" in entry:
            if entry["python"] not in ("run", "mock"):
                self.add("python is `run` or `mock`", (*path, "python"))
            case.runs_python = entry["python"] == "run"
        if "now" in entry:
            try:
                case.now = micros(str(entry["now"]))
            except ValueError:
                self.add("now is an instant such as 2026-01-31T08:00:00Z", (*path, "now"))
        case.within_s = self.number(entry, "within_s", path, base.within_s)
        case.expect = {**base.expect, **self.expect(entry, path)}
        skip = entry.get("skip", "")
        case.skip = skip if isinstance(skip, str) else "skipped" if skip else ""
        return case

    def expect(self, entry: dict[str, Any], path: DocumentPath) -> dict[str, Any]:
        where = (*path, "expect")
        expect = self.keys(entry.get("expect") or {}, _EXPECT, where)
        if "state" in expect and expect["state"] not in STATES:
            self.add(f"state is one of {', '.join(STATES)}", (*where, "state"))
        shapes = {"path": list, "not_run": list, "events": list, "calls": dict, "ctx": dict}
        for key, shape in shapes.items():
            if key in expect and not isinstance(expect[key], shape):
                self.add(f"{key} is a {'list' if shape is list else 'map'}", (*where, key))
                del expect[key]
        return expect

    def mock(self, entry: Any, path: DocumentPath) -> Mock:
        raw = self.keys(entry, _MOCK, path)
        mock = Mock(self.document.at(path), self.text(raw, "step", path, required=True), self.text(raw, "task", path))
        answers = [key for key in ("ok", "error", "real") if key in raw]
        if len(answers) > 1:
            self.add(f"a mock has one answer, not {' and '.join(answers)}", (*path, answers[1]))
        if not answers and "result" not in raw:
            self.add("this mock has no answer", path, "ok: VALUE, or error: {kind: timeout}, or real: true")
        mock.ok = raw.get("ok")
        mock.result, mock.has_result = raw.get("result"), "result" in raw
        mock.real = raw.get("real") is True
        if "error" in raw:
            mock.error = self.error(raw["error"], (*path, "error"))
        mock.helper = self.mapping(raw, "helper", path)
        mock.files = self.files(raw, path)
        mock.config = self.mapping(raw, "with", path)
        mock.item = self.item(raw.get("item"), (*path, "item"))
        attempt = raw.get("attempt", ())
        attempts = attempt if isinstance(attempt, list) else [attempt] if attempt != () else []
        if not all(isinstance(attempt, int) and not isinstance(attempt, bool) and attempt > 0 for attempt in attempts):
            self.add("attempt is a number from 1, or a list of them", (*path, "attempt"))
            attempts = []
        mock.attempts = tuple(attempts)
        mock.takes_s = self.number(raw, "takes_s", path, 0.0)
        mock.times = int(self.number(raw, "times", path, 0))
        mock.optional = raw.get("optional") is True
        return mock

    def files(self, raw: dict[str, Any], path: DocumentPath) -> dict[str, Any]:
        files = self.mapping(raw, "files", path)
        if files and ("error" in raw or "real" in raw):
            self.add("only an attempt that succeeds, and is mocked, has files", (*path, "files"))
        for name, content in files.items():
            where = (*path, "files", name)
            if isinstance(content, dict) and content.keys() == {"base64"}:
                try:
                    b64decode(str(content["base64"]), validate=True)
                except ValueError:
                    self.add(f"files.{name}: this is not base64", where)
            elif not isinstance(content, str):
                self.add(f"files.{name} is the text of a file, or {{base64: …}}", where)
        return files

    def item(self, raw: Any, path: DocumentPath) -> tuple[int, ...] | None:
        if raw is None:
            return None
        if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 0:
            return (raw,)
        if isinstance(raw, str) and all(part.isdigit() for part in raw.split(".")):
            return tuple(int(part) for part in raw.split("."))
        self.add("item is the index of a loop item from 0; of a nested loop a text such as '2.0'", path)
        return None

    def error(self, raw: Any, path: DocumentPath) -> dict[str, Any]:
        error = {"kind": raw} if isinstance(raw, str) else self.keys(raw, _ERROR, path)
        kind = error.get("kind", "exception")
        if kind not in ERROR_KINDS:
            near = nearest(str(kind), ERROR_KINDS)
            hint = f"did you mean {near}?" if near else f"one of {', '.join(ERROR_KINDS)}"
            self.add(f"there is no error kind {str(kind)[:60]!r}", path, hint)
            kind = "exception"
        return {"message": f"mocked {kind} error", **error, "kind": kind}

    def signal(self, entry: Any, path: DocumentPath) -> SignalAt:
        raw = self.keys(entry, _SIGNAL, path)
        signal = SignalAt(self.document.at(path), self.text(raw, "signal", path, required=True))
        signal.after_s = self.number(raw, "at", path, SIGNAL_AT_S)
        signal.step = self.text(raw, "step", path)
        signal.reason = self.text(raw, "reason", path) or "test"
        signal.by = self.text(raw, "by", path) or "test"
        signal.data = raw.get("data")
        return signal

    # --- parts ------------------------------------------------------------------------------------------------------

    def keys(self, value: Any, allowed: frozenset[str], path: DocumentPath) -> dict[str, Any]:
        """The map at a path, without unknown keys, which are errors."""
        if not isinstance(value, dict):
            self.add("this must be a map", path)
            return {}
        for key in value:
            if key not in allowed and not key.startswith("x-"):
                near = nearest(key, allowed)
                hint = f"did you mean {near}?" if near else f"known: {', '.join(sorted(allowed))}"
                self.findings.append(
                    Finding(
                        "unknown-key", f"there is no key {key!r} here", self.document.key_at((*path, key)), hint=hint
                    )
                )
        return {key: part for key, part in value.items() if key in allowed}

    def mapping(self, entry: dict[str, Any], key: str, path: DocumentPath) -> dict[str, Any]:
        value = entry.get(key)
        if value is not None and not isinstance(value, dict):
            self.add(f"{key} is a map", (*path, key))
            return {}
        return value or {}

    def entries(self, entry: dict[str, Any], key: str, path: DocumentPath) -> list[tuple[int, Any]]:
        value = entry.get(key)
        if value is not None and not isinstance(value, list):
            self.add(f"{key} is a list", (*path, key))
            return []
        return list(enumerate(value or ()))

    def text(self, entry: dict[str, Any], key: str, path: DocumentPath, *, required: bool = False) -> str:
        value = entry.get(key, "")
        if not isinstance(value, str) or (required and not value):
            self.add(f"{key} must be a text", path if key not in entry else (*path, key))
            return ""
        return value

    def number(self, entry: dict[str, Any], key: str, path: DocumentPath, default: float) -> float:
        value = entry.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            self.add(f"{key} is a number from 0", (*path, key))
            return default
        return float(value)

    def add(self, message: str, path: DocumentPath, hint: str = "") -> None:
        self.findings.append(Finding("bad-test", message, self.document.at(path), hint=hint))
