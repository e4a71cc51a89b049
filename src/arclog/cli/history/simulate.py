"""`arclog simulate`: runs a changed playbook against recorded runs."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import FAILED, OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.ports.views.api import Api
    from arclog.ports.views.history import SimulatedCall, SimulatedRun, SimulationReport

#: Runs for each request.
_AT_A_TIME = 50
_MOST_CALLS = 10


def simulate_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="the changed playbook")
    parser.add_argument(
        "--from", dest="runs", metavar="ID", nargs="+", default=[], help="recorded runs: execution ids, or last"
    )
    parser.add_argument(
        "--last",
        metavar="N",
        type=int,
        help="the latest N runs of the playbook, by its path (default: 100, when no run is named)",
    )
    parser.add_set("change a value of each run's workload")
    parser.add_map("a step has another name in the changed playbook")
    parser.add_argument(
        "--strict", action="store_true", help="treat a call whose inputs or code have changed as unanswered"
    )
    parser.epilog = (
        "Runs the playbook against the recorded outcomes. No task runs and nothing is written.\n\n"
        "examples:\n"
        "  arclog simulate changed.yaml --from last\n"
        "  arclog simulate changed.yaml --last 200 --json\n\n"
        "exit codes: 0 every run takes the same path to the same result, 1 some do not"
    )


def simulate_command(options: Namespace) -> int:
    import asyncio

    from arclog.authoring.playbook_files import FilesBeside
    from arclog.cli.home import checked, exists, nothing_yet, opened, resolve, settings_of
    from arclog.cli.options import mapping_of
    from arclog.cli.playbooks.files import called_playbooks, files_beside, playbook_text, workload_of
    from arclog.cli.render import out_of
    from arclog.model.errors import NotFound
    from arclog.ports.views.history import SimulateRequest

    if options.runs and options.last is not None:
        raise Usage("use either --from or --last, not both")
    if options.last is not None and options.last < 1:
        raise Usage(f"--last {options.last} is not a number of 1 or more")
    for run_id in options.runs:
        if run_id != "last":
            checked(run_id)
    out, settings = out_of(options), settings_of(options)
    text, file = playbook_text(options.file, settings)
    options.playbook = options.file
    renamed = mapping_of(options)
    beside = FilesBeside(settings)
    files = {**called_playbooks(text, file, settings, beside), **files_beside(text, file, settings), **beside.taken}
    workload = workload_of(None, options.assignments, settings)
    if not exists(settings):
        raise NotFound(nothing_yet(settings))

    async def reports(api: Api) -> list[SimulationReport]:
        def request(**selection: Any) -> SimulateRequest:
            return SimulateRequest(
                text, file, files, workload=workload, map=renamed, strict=options.strict, **selection
            )

        runs = [await resolve(api, run_id) for run_id in options.runs]
        if not runs and options.last is None:
            return [await api.simulate(request())]
        if not runs:
            return [await api.simulate(request(last=options.last))]
        parts = [runs[at : at + _AT_A_TIME] for at in range(0, len(runs), _AT_A_TIME)]
        return [await api.simulate(request(runs=part)) for part in parts]

    async def go() -> SimulationReport:
        async with opened(settings, read_only=True) as runtime:
            return _joined(await reports(runtime.api))

    report = asyncio.run(go())
    if out.as_json:
        out.data(report)
    else:
        out.print(_page(report, out))
    return OK if report.ok else FAILED


def _joined(reports: list[SimulationReport]) -> SimulationReport:
    from collections import Counter

    from arclog.ports.views.history import SimulationReport

    verdicts: Counter[str] = Counter()
    for report in reports:
        verdicts.update(report.verdicts)
    return SimulationReport(
        ok=all(report.ok for report in reports),
        verdicts=dict(sorted(verdicts.items())),
        steps=sum(report.steps for report in reports),
        runs=[run for report in reports for run in report.runs],
    )


def _page(report: SimulationReport, out: Out) -> str:
    from arclog.cli.render import counted, indented

    width = out.size()[0] - 2
    parts: list[str] = []
    changed = [run for run in report.runs if run.verdict != "same"]
    if changed:
        parts.append(_runs_table(changed, width, out))
    for title, calls in (
        ("calls without a recorded answer", _calls(report, "unanswered")),
        ("calls whose inputs or code have changed (answered from the log)", _calls(report, "assumed")),
    ):
        if calls:
            lines = [f"{name}: {reason} ({times})" for (name, reason), times in calls[:_MOST_CALLS]]
            more = [f"… {len(calls) - _MOST_CALLS} more: --json"] if len(calls) > _MOST_CALLS else []
            parts += [out.paint(title, "bold"), indented("\n".join([*lines, *more]))]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report.verdicts.items())
    parts.append(f"{counted(len(report.runs), 'run')}, {counted(report.steps, 'step')} simulated: {counts}")
    return "\n".join(parts)


def _runs_table(runs: list[SimulatedRun], width: int, out: Out) -> str:
    """The runs that differ. Where a reason does not fit beside its run, all reasons are on lines of their own."""
    from arclog.cli.render import indented, table, width_of

    head = ("RUN", "VERDICT", "WAS", "WOULD BE", "WHERE")
    rows = [(run.execution_id, run.verdict, run.recorded, run.simulated, _where(run)) for run in runs]
    whole = table(head, rows, width, out)
    if all(width_of(line) <= width for line in table(head, rows, 10_000, out).splitlines()):
        return whole
    first, *lines = table(head[:-1], [row[:-1] for row in rows], width, out).splitlines()
    return "\n".join([first, *(f"{line}\n{indented(row[-1])}" for line, row in zip(lines, rows, strict=True))])


def _where(run: SimulatedRun) -> str:
    from arclog.cli.render import clean, clip, json_text, one_line

    if run.divergence is not None:
        seq = run.divergence["seq"]
        return clean(run.divergence["cause"]) + (f" (event {seq})" if seq else "")
    if run.result is not None:
        was, would = (clip(one_line(json_text(run.result[side])), 30) for side in ("recorded", "simulated"))
        return f"result {was}, would be {would}"
    if run.unanswered:
        return f"{_name(run.unanswered[0])} has no recorded answer"
    return clean(run.problem)


def _name(call: SimulatedCall) -> str:
    item = f"[{'.'.join(map(str, call.item))}]" if call.item else ""
    return f"{call.step}{item}.{call.task}"


def _calls(report: SimulationReport, which: str) -> list[tuple[tuple[str, str], str]]:
    """Calls by task and reason, the most frequent first, with their number."""
    from collections import Counter

    from arclog.cli.render import counted
    from arclog.ports.views.history import MOST_CALLS

    listed = [getattr(run, which) for run in report.runs]
    calls = Counter((f"{call.step}.{call.task}", call.reason) for part in listed for call in part)
    least = "at least " if any(len(part) == MOST_CALLS for part in listed) else ""
    return [(call, f"{least}{counted(count, 'time')}") for call, count in calls.most_common()]
