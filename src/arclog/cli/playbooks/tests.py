"""The command `test`: runs the tests of playbooks offline, or records one from a run."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from arclog.cli.exits import FAILED, OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.model.config.settings import Settings
    from arclog.testing.playbook_tests.runner import FileReport

#: Fewer tests than this are faster in one process.
_WORTH_PROCESSES = 400


def test_arguments(parser: Parser) -> None:
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="*.test.yaml files, or folders with them (default: .); `record ID`: see below",
    )
    parser.add_argument("-k", metavar="TEXT", default="", dest="only", help="only tests whose name contains this text")
    parser.add_argument("--update", action="store_true", help="rewrite snapshots")
    parser.add_argument("--junit", metavar="FILE", help="write a JUnit XML report")
    parser.add_argument("--coverage", action="store_true", help="show steps, arcs and rules that no test covers")
    parser.add_argument(
        "--min-coverage", type=float, metavar="PERCENT", help="fail if fewer steps, arcs and rules are covered"
    )
    parser.add_argument(
        "--jobs", "-j", type=int, default=0, metavar="N", help="number of processes (default: chosen automatically)"
    )
    parser.add_argument("--output", "-o", metavar="FILE", help="record: write the test here (default: standard output)")
    parser.epilog = """\
`arclog test record ID` prints a test made from a run: its workload, a mock for each outcome, its path and result.

example: arclog test flows --coverage --junit report.xml"""


def test_command(options: Namespace) -> int:
    if options.paths[:1] == ["record"]:
        return _record(options)
    import os

    from arclog.cli.home import settings_of
    from arclog.cli.render import counted, duration, out_of
    from arclog.testing.playbook_tests.runner import find_files, run_files

    out = out_of(options)
    settings = settings_of(options)
    files = list(find_files(options.paths or ["."]))
    if not files:
        where = " or ".join(options.paths or ["this folder"])
        hint = "put the tests of flow.yaml into flow.test.yaml in the same folder"
        raise Usage(f"there are no tests in {where}", hint, FAILED)
    jobs = options.jobs or (os.cpu_count() or 1 if _tests_in(files) >= _WORTH_PROCESSES else 1)
    import time

    began = time.monotonic()
    reports = run_files(
        files,
        settings,
        only=options.only,
        update=options.update,
        jobs=jobs,
        on_report=lambda report: None if out.as_json else _show(report, out),
    )
    if options.junit:
        _write_junit(options.junit, reports)
    coverage = _coverages(reports)
    cases = [case for report in reports for case in report.cases]
    numbers = {status: sum(case.status == status for case in cases) for status in ("passed", "failed", "skipped")}
    broken = sum(bool(report.problem) for report in reports)
    low = [
        (file, share)
        for file, (share, _) in coverage.items()
        if options.min_coverage is not None and share * 100 < options.min_coverage
    ]
    if out.as_json:
        out.data(_as_data(reports, numbers))
    else:
        if options.coverage:
            _show_coverage(coverage, out)
        for file, share in low:
            out.print(f"{out.mark('failed')} {file}: {share:.0%} covered, below {options.min_coverage:g} %")
        words = [f"{number} {status}" for status, number in numbers.items() if number or status == "passed"]
        words += [counted(broken, "file") + " could not be run"] if broken else []
        if not cases and not broken:
            out.print(f"{out.mark('failed')} no test has {options.only!r} in its name")
            return FAILED
        bad = broken or numbers["failed"] or low or not cases
        out.print(f"{out.mark('failed' if bad else 'done')} {', '.join(words)} in {duration(time.monotonic() - began)}")
    return FAILED if broken or numbers["failed"] or low or not cases else OK


def _tests_in(files: list[str]) -> int:
    """The approximate number of tests, without parsing them."""
    number = 0
    for file in files:
        try:
            with open(file, "rb") as source:  # noqa: PTH123 - pathlib costs a start 2 ms
                number += source.read().count(b"- name:")
        except OSError:
            continue
    return number


def _show(report: FileReport, out: Out) -> None:
    from arclog.cli.render import clean

    if report.problem:
        out.print(f"{out.mark('failed')} {clean(report.file)}")
        out.print(clean("\n".join(f"  {line}" for line in report.problem.splitlines())) + "\n")
    marks = {"passed": "done", "failed": "failed", "skipped": "skipped"}
    for case in report.cases:
        if case.status == "failed" or not out.quiet:
            out.print(f"{out.mark(marks[case.status])} {clean(report.file)}:{case.line} {clean(case.name)}")
        for message in case.messages if case.status == "failed" else ():
            out.print(clean("\n".join(f"    {line}" for line in message.splitlines())))


def _coverages(reports: list[FileReport]) -> dict[str, tuple[float, list[str]]]:
    """Return, by playbook, the share that its tests cover, and the uncovered parts with their lines."""
    from arclog.testing.playbook_tests.runner import Coverage

    merged: dict[str, Coverage] = {}
    for report in reports:
        if report.playbook and not report.problem:
            merged.setdefault(report.playbook, Coverage()).merge(report.coverage)
    return {
        file: (coverage.share, [f"{file}:{at}: {missed}" for missed, at in coverage.missed.items()])
        for file, coverage in merged.items()
    }


def _show_coverage(coverage: dict[str, tuple[float, list[str]]], out: Out) -> None:
    for file, (share, missed) in coverage.items():
        out.print(f"{file}: {share:.0%} of its steps, arcs and rules are covered")
        for line in missed:
            out.print(f"  not covered   {line}")


def _as_data(reports: list[FileReport], numbers: dict[str, int]) -> dict[str, object]:
    return {
        **numbers,
        "files": [
            {
                "file": report.file,
                "playbook": report.playbook,
                "problem": report.problem or None,
                "coverage": round(report.coverage.share, 4),
                "missed": {missed: str(at) for missed, at in report.coverage.missed.items()},
                "tests": [
                    {
                        "name": case.name,
                        "line": case.line,
                        "status": case.status,
                        "messages": case.messages,
                        "took_s": round(case.took_s, 4),
                    }
                    for case in report.cases
                ],
            }
            for report in reports
        ],
    }


def _write_junit(file: str, reports: list[FileReport]) -> None:
    from arclog.testing.playbook_tests.runner import as_junit

    with open(file, "w", encoding="utf-8") as target:  # noqa: PTH123 - pathlib costs a start 2 ms
        target.write(as_junit(reports))


def _record(options: Namespace) -> int:
    """Print a test created from a run."""
    import asyncio

    from arclog.cli.home import opened, require, resolve, settings_of
    from arclog.cli.render import out_of

    if len(options.paths) != 2:
        raise Usage("record takes the id of a run", "for example `arclog test record last`")
    out = out_of(options)
    settings = settings_of(options)
    raw = options.paths[1]
    require(settings, raw)

    async def go() -> str:
        async with opened(settings, read_only=True) as runtime:
            return await _recorded(runtime.api, await resolve(runtime.api, raw), settings)

    text = asyncio.run(go())
    if options.output:
        try:
            with open(options.output, "x", encoding="utf-8") as target:  # noqa: PTH123 - pathlib costs a start 2 ms
                target.write(text)
        except FileExistsError:
            raise Usage(f"{options.output} already exists", "choose another name, or print it: no --output") from None
        out.print(f"{out.mark('done')} {options.output}")
    else:
        out.write(text)
    return OK


async def _recorded(api: object, execution_id: str, settings: Settings) -> str:
    from typing import Any, cast

    from arclog.model.errors import ArclogError
    from arclog.testing.playbook_tests.recording import Recorded, recorded, stored_refs
    from arclog.wiring.kinds import installed_kinds

    full_api: Any = cast(Any, api)
    events: list[dict[str, Any]] = []
    while page := await full_api.events(execution_id, after=events[-1]["seq"] if events else 0, limit=1000):
        events += page
    plan = await full_api.graph(execution_id)
    kinds = {(step["name"], task["name"]): task["kind"] for step in plan["steps"] for task in step["tasks"]}
    specs = installed_kinds()
    helpers = {kind: specs[kind].helper for kind in set(kinds.values()) if kind in specs}
    contents: dict[str, bytes] = {}
    for ref, size in stored_refs(events).items():
        if size <= settings.integer("tests.record_max_bytes"):
            try:
                contents[ref] = b"".join([chunk async for chunk in full_api.content(ref)])
            except ArclogError:
                continue  # the content was removed; the test notes that
    return recorded(
        events, f"as run {execution_id}", Recorded(await full_api.source(execution_id), kinds, helpers, contents)
    )
