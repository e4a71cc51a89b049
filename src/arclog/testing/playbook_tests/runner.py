"""Runs test files: reads, compiles, runs every case, judges, and keeps snapshots."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from msgspec.json import decode

from arclog.authoring.playbook_files import FilesBeside
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError, PlaybookError, Position
from arclog.model.events import Event
from arclog.plan.build import build, render_finding
from arclog.plan.net import Plan
from arclog.ports.tool import ToolKind
from arclog.testing.playbook_tests.cases import SUFFIXES, Case, CaseFile, Mock, read_cases
from arclog.testing.playbook_tests.expectations import as_json, failures, snapshot_of
from arclog.testing.playbook_tests.mocks import PURE, MockedKinds
from arclog.testing.playbook_tests.stage import CaseRun, Stage
from arclog.testing.virtual import VirtualLoop
from arclog.wiring.kinds import KindSpecs, ToolKinds, tool_kinds

# ── coverage ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Coverage: the arcs and rules of a playbook that its tests took.


@dataclass(slots=True)
class Coverage:
    """The arcs and rules of a plan, and those that were taken."""

    #: description → position, in order of the plan
    places: dict[str, Position] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, plan: Plan) -> Coverage:
        coverage = cls()
        for step in plan.steps:
            coverage.places[f"step {step.name}"] = step.at
            for index, arc in enumerate(step.arcs):
                coverage.places[f"arc {step.name}[{index}] → {arc.target}"] = arc.at
            for index, rule in enumerate(step.admit or ()):
                coverage.places[f"admission rule {step.name}[{index}]"] = rule.at
            for task in step.tasks:
                for index, chosen in enumerate(task.policy.rules if task.policy is not None else ()):
                    coverage.places[f"rule {step.name}.{task.name}[{index}]"] = chosen.at
        return coverage

    def add(self, plan: Plan, events: Iterable[Event]) -> None:
        """Add the arcs and rules that a run took."""
        targets = {(step.name, index): arc.target for step in plan.steps for index, arc in enumerate(step.arcs)}
        for event in events:
            if event.type == "step.scheduled":
                self.taken.add(f"step {event.step}")
            elif event.type == "next.evaluated":
                for arc in event.payload.get("selected", ()):
                    target = targets.get((event.step, arc.get("arc")))
                    self.taken.add(f"arc {event.step}[{arc.get('arc')}] → {target}")
            elif event.type in ("policy.task.evaluated", "policy.admit.evaluated"):
                index = event.payload.get("matched_rule_index")
                if index is not None:
                    subject = (
                        "admission rule " + event.step
                        if event.type == "policy.admit.evaluated"
                        else f"rule {event.step}.{event.task}"
                    )
                    self.taken.add(f"{subject}[{index}]")

    def merge(self, other: Coverage) -> None:
        """Add the coverage of another run of the same playbook's tests."""
        self.places |= other.places
        self.taken |= other.taken

    @property
    def missed(self) -> dict[str, Position]:
        return {subject: at for subject, at in self.places.items() if subject not in self.taken}

    @property
    def share(self) -> float:
        """The share that was taken, 0 to 1."""
        return 1.0 if not self.places else 1 - len(self.missed) / len(self.places)


# ── runner ────────────────────────────────────────────────────────────────────────────────────────────────────────────

SNAPSHOTS = "__snapshots__"
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", SNAPSHOTS})


@dataclass(slots=True)
class CaseReport:
    """The result of one test."""

    file: str
    name: str
    line: int
    #: passed failed skipped
    status: str
    messages: list[str] = field(default_factory=list)
    #: real seconds
    took_s: float = 0.0


@dataclass(slots=True)
class FileReport:
    """The results of the tests of one file."""

    file: str
    playbook: str = ""
    cases: list[CaseReport] = field(default_factory=list)
    #: why the file could not be run; '' when it could
    problem: str = ""
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def passed(self) -> bool:
        return not self.problem and all(case.status != "failed" for case in self.cases)


def find_files(paths: Sequence[str]) -> Iterator[str]:
    """The test files among some paths: folders are searched, files are taken as they are."""
    for path in paths:
        if not Path(path).is_dir():
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
            yield from (str(Path(folder) / name) for name in sorted(names) if name.endswith(SUFFIXES))


def run_file(
    file: str, settings: Settings | None = None, *, only: str = "", update: bool = False, text: str | None = None
) -> FileReport:
    """Run the tests of a file; with `only`, those whose name contains that text. `update` writes snapshots again."""
    report = FileReport(file)
    try:
        cases = read_cases(Path(file).read_bytes() if text is None else text, file, settings)
        report.playbook = cases.playbook
        stage = open_stage(cases.playbook, settings)
    except PlaybookError as error:
        report.problem = "\n".join(render_finding(finding, error.source, error.file) for finding in error.findings)
        return report
    except OSError as error:
        report.problem = f"cannot read {error.filename}: {error.strerror}"
        return report
    report.coverage = Coverage.of(stage.plan)
    selected = [case for case in cases.cases if only.lower() in case.name.lower()]
    report.problem = mock_problems(cases, stage)
    if report.problem:
        return report
    snapshots = _Snapshots(file, update=update)
    used: set[int] = set()
    for case in selected:
        report.cases.append(_run_case(case, file, stage, snapshots, report.coverage, used))
    if not only:
        _unused_defaults(cases, used, report)
        snapshots.write([case.name for case in cases.cases])
    elif update:
        snapshots.write(None)
    return report


def open_stage(playbook: str, settings: Settings | None = None) -> Stage:
    """Compile a playbook for its tests. Raises PlaybookError, or OSError when it cannot be read."""
    return stage_of(Path(playbook).read_text(encoding="utf-8"), playbook, settings)


def stage_of(
    text: str, file: str, settings: Settings | None = None, *, kinds: Sequence[ToolKind | type[Any]] = ()
) -> Stage:
    """Compile the text of a playbook for its tests. `kinds` are those of the tested program. Raises PlaybookError."""
    tools = ToolKinds(kinds) if kinds else tool_kinds()
    specs = MockedKinds(KindSpecs(tools))
    beside = FilesBeside(settings or Settings()).of("" if file == "<text>" else file)
    made = build(text, file, specs, settings, beside)
    if made.plan is None:
        raise PlaybookError(made.errors, made.source, made.file)
    pure = {name: tools[name] for name in PURE if name in tools}
    return Stage(text, made.plan, file, specs, pure, settings, beside.taken)


def mock_problems(cases: CaseFile, stage: Stage) -> str:
    """Return the mocks of steps or tasks that are not in the playbook. They are mistakes before anything runs."""
    steps = {step.name: {task.name: task.kind for task in step.tasks} for step in stage.plan.steps}
    messages: dict[str, None] = {}
    for case in cases.cases:
        for mock in case.mocks:
            where = f"{cases.file}:{mock.at.line}"
            if mock.step not in steps:
                messages[f"{where}: the playbook has no step {mock.step!r}; it has {', '.join(steps)}"] = None
            elif mock.task and mock.task not in steps[mock.step]:
                tasks = ", ".join(steps[mock.step])
                messages[f"{where}: step {mock.step} has no task {mock.task!r}; it has {tasks}"] = None
            else:
                if problem := _files_problem(mock, stage):
                    messages[f"{where}: {problem}"] = None
                kinds = {kind for name, kind in steps[mock.step].items() if mock.task in ("", name)}
                if kinds and kinds <= {"wait", "approval"}:
                    messages[f"{where}: {mock} waits in virtual time and is not mocked; end it with `signals:`"] = None
    return "\n".join(messages)


def _files_problem(mock: Mock, stage: Stage) -> str:
    """Return why a mock cannot provide its files; '' if it can."""
    step = next(step for step in stage.plan.steps if step.name == mock.step)
    outputs = {name for task in step.tasks if mock.task in ("", task.name) for name in task.config.get("outputs") or {}}
    unknown = [name for name in mock.files if name not in outputs]
    if not unknown:
        return ""
    return f"the outputs of {mock} have no file {unknown[0]!r}; " + (
        f"they are {', '.join(sorted(outputs))}" if outputs else "it has no outputs"
    )


def _run_case(
    case: Case,
    file: str,
    stage: Stage,
    snapshots: _Snapshots,
    coverage: Coverage,
    used: set[int],
) -> CaseReport:
    report = CaseReport(file, case.name, case.at.line, "passed")
    if case.skip:
        report.status, report.messages = "skipped", [case.skip]
        return report
    began = time.perf_counter()
    loop = VirtualLoop()
    try:
        run: CaseRun = loop.run_until_complete(stage.run(case))
    except ArclogError as error:
        report.messages = [f"{type(error).__name__}: {error}"]
    else:
        coverage.add(stage.plan, run.events)
        if run.book is not None:
            used.update(id(mock) for index, mock in enumerate(case.mocks) if run.book.used[index])
        report.messages = failures(case, run)
        if case.expect.get("snapshot") and not run.problem:
            report.messages += snapshots.compare(case.name, snapshot_of(run))
    finally:
        loop.close()
    report.took_s = time.perf_counter() - began
    if report.messages:
        report.status = "failed"
    return report


def _unused_defaults(cases: CaseFile, used: set[int], report: FileReport) -> None:
    shared = {id(mock): mock for case in cases.cases for mock in case.mocks if mock.shared and not mock.optional}
    for number, mock in shared.items():
        if number not in used:
            message = f"the mock of {mock} under defaults answered nothing in any test"
            report.cases.append(CaseReport(cases.file, "defaults", mock.at.line, "failed", [message]))


class _Snapshots:
    """The snapshots of earlier runs of a file's tests."""

    def __init__(self, file: str, *, update: bool) -> None:
        self._path = Path(file).parent / SNAPSHOTS / (Path(file).name.partition(".test.")[0] + ".json")
        self._update = update
        self._stored: dict[str, Any] | None = None
        self._changed = False

    @property
    def stored(self) -> dict[str, Any]:
        if self._stored is None:
            self._stored = decode(self._path.read_bytes()) if self._path.exists() else {}
        return self._stored

    def compare(self, name: str, snapshot: dict[str, Any]) -> list[str]:
        now = decode(as_json(snapshot))
        if self._update:
            self._changed = self._changed or self.stored.get(name) != now
            self.stored[name] = now
            return []
        if name not in self.stored:
            return [f"there is no snapshot of this test; `arclog test --update` writes {self._path}"]
        if self.stored[name] == now:
            return []
        import difflib

        before, after = (as_json(part).decode().splitlines() for part in (self.stored[name], now))
        shown = difflib.unified_diff(before, after, "snapshot", "this run", lineterm="", n=2)
        return ["snapshot: the run differs; if it is meant to, `arclog test --update`\n" + "\n".join(shown)]

    def write(self, names: list[str] | None) -> None:
        """Write changed snapshots; with the names of all tests, snapshots of missing tests are removed."""
        if not self._update or self._stored is None:
            return
        gone = [] if names is None else [name for name in self._stored if name not in names]
        for name in gone:
            del self._stored[name]
        if self._changed or gone:
            self._path.parent.mkdir(exist_ok=True)
            self._path.write_bytes(as_json(self._stored))


def run_files(
    files: Sequence[str],
    settings: Settings | None = None,
    *,
    only: str = "",
    update: bool = False,
    jobs: int = 1,
    on_report: Callable[[FileReport], None] = lambda _: None,
) -> list[FileReport]:
    """Run many files, `jobs` at a time in separate processes. Reports come in the order of the files."""
    run = partial(run_file, settings=settings, only=only, update=update)
    reports: list[FileReport] = []
    if jobs <= 1 or len(files) < 2:
        gc.set_threshold(50_000, 20, 100)
        for file in files:
            reports.append(run(file))
            on_report(reports[-1])
        return reports
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(min(jobs, len(files)), get_context("forkserver")) as pool:
        for report in pool.map(run, files):
            reports.append(report)
            on_report(report)
    return reports


# ── junit ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Reports of playbook tests as JUnit XML, which CI systems read.


def as_junit(reports: Sequence[FileReport]) -> str:
    """One `testsuite` for each file."""
    suites = "\n".join(_suite(report) for report in reports)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="arclog">\n{suites}\n</testsuites>\n'


def _suite(report: FileReport) -> str:
    failed = sum(case.status == "failed" for case in report.cases)
    skipped = sum(case.status == "skipped" for case in report.cases)
    took = sum(case.took_s for case in report.cases)
    cases = [_case(case) for case in report.cases]
    if report.problem:
        cases.append(_element(report.file, "file", 0.0, f"<error>{_text(report.problem)}</error>"))
    head = f'  <testsuite name={quoteattr(report.file)} tests="{len(cases)}" failures="{failed}"'
    head += f' errors="{int(bool(report.problem))}" skipped="{skipped}" time="{took:.3f}">'
    return "\n".join([head, *cases, "  </testsuite>"])


def _case(case: CaseReport) -> str:
    body = ""
    if case.status == "failed":
        first = case.messages[0].splitlines()[0]
        message = "\n".join(case.messages)
        body = f"<failure message={quoteattr(_printable(first))}>{_text(message)}</failure>"
    elif case.status == "skipped":
        body = f"<skipped message={quoteattr(_printable(' '.join(case.messages)))}/>"
    return _element(case.file, case.name, case.took_s, body, case.line)


def _element(file: str, name: str, took_s: float, body: str, line: int = 0) -> str:
    head = f'    <testcase classname={quoteattr(file)} name={quoteattr(_printable(name))} file={quoteattr(file)} line="{line}"'
    return f'{head} time="{took_s:.3f}">{body}</testcase>'


def _text(text: str) -> str:
    return escape(_printable(text))


def _printable(text: str) -> str:
    """The text in characters that XML allows."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
