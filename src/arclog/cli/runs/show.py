"""Commands about one run: show, status, why; and version."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.ports.views.api import Api, Summary
    from arclog.ports.views.insight import StepSummary


def _id_argument(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="execution id, its first digits, or last")


# ── show ─────────────────────────────────────────────────────────────────────────────────────────────────────────

show_arguments = _id_argument


def show_command(options: Namespace) -> int:
    from arclog.cli.home import with_run
    from arclog.cli.render import out_of

    out = out_of(options)

    async def work(api: Api, execution_id: str) -> int:
        summary = await api.summary(execution_id)
        if out.as_json:
            out.data(summary)
        else:
            out.print(await _page(api, summary, out))
        return OK

    return with_run(options, work)


async def _page(api: Api, summary: Summary, out: Out) -> str:
    """A run on one page."""
    from arclog.cli.render import between, indented, moment, one_line, pretty, stored
    from arclog.cli.runs.account import account, next_lines

    status = await api.status(summary.execution_id)
    took = between(summary.started_at, summary.ended_at)
    facts = [
        ("execution", summary.execution_id),
        ("run", summary.run_id),
        ("state", out.state(summary.state) + (" (paused)" if await api.pausing(summary.execution_id) else "")),
        ("started", moment(summary.started_at) or "not yet"),
        ("ended", f"{moment(summary.ended_at)}{f' · took {took}' if took else ''}" if summary.ended_at else "not yet"),
    ]
    if summary.imported:
        facts.append(("imported", "recorded elsewhere; read-only"))
    if summary.origin is not None:
        origin = summary.origin
        where = f"at event {origin.seq:,}" if origin.events else "from its start"
        facts.append(("origin", f"{origin.how} of {origin.execution_id} {where}"))
    if summary.ended_at is None and status.current_step:
        facts.append(("at step", status.current_step))
    parts = [out.paint(one_line(summary.name), "bold"), *(f"  {label:<10}{value}" for label, value in facts)]
    if summary.steps:
        parts += ["", out.paint("steps", "bold"), indented(_steps_table(summary, out))]
    whole = f"arclog show {summary.execution_id} --json"
    for label, value in (("ctx", summary.ctx), ("result", summary.result)):
        if value not in ({}, None):
            parts += ["", out.paint(label, "bold"), indented(pretty(value, full_command=whole))]
    if summary.result_ref is not None:
        parts += ["", out.paint("result", "bold"), indented(stored(summary.result_ref))]
    lines = account(summary, out)
    if lines:
        label = "error" if summary.state in ("FAILED", "CANCELLED") else "problems"
        parts += ["", out.paint(label, "bold"), lines]
    if summary.state in ("FAILED", "CANCELLED"):
        parts += ["", next_lines([f"arclog why {summary.execution_id}", *summary.next], out)]
    elif summary.ended_at is None:
        hints = (
            f"arclog why {summary.execution_id}     shows what it is waiting for",
            f"arclog resume {summary.execution_id}  if its process died",
        )
        parts += ["", indented("\n".join(out.paint(hint, "dim") for hint in hints))]
    return "\n".join(parts)


def _steps_table(summary: Summary, out: Out) -> str:
    from arclog.cli.render import duration, table

    rows = []
    for name, step in summary.steps.items():
        took = "" if step.took_ms is None else duration(step.took_ms / 1000)
        rows.append((f"{out.mark(step.status)} {name}", step.status, f"{step.runs:,}", took, _step_detail(step)))
    return table(("STEP", "STATUS", "RUNS", "TOOK", "DETAIL"), rows, out.size()[0] - 2, out, right=(2, 3))


def _step_detail(step: StepSummary) -> str:
    from arclog.cli.render import one_line

    parts = []
    if step.items is not None:
        items = step.items
        parts.append(
            f"{items.ok:,} ok, {items.failed:,} failed" if items.failed else f"{items.ok:,}/{items.total:,} items"
        )
    if step.denied:
        parts.append("not admitted" if step.denied == 1 else f"not admitted {step.denied:,} times")
    if step.status == "failed" and step.error is not None:
        parts.append(one_line(f"{step.error.get('kind')}: {step.error.get('message')}"))
    return " · ".join(parts)


# ── status, why ──────────────────────────────────────────────────────────────────────────────────────────────────

status_arguments = _id_argument
why_arguments = _id_argument


def status_command(options: Namespace) -> int:
    from arclog.cli.home import with_run
    from arclog.cli.render import out_of

    out = out_of(options)

    async def work(api: Api, execution_id: str) -> int:
        _print_status(await api.status(execution_id), out)
        return OK

    return with_run(options, work)


def _print_status(now: Any, out: Out) -> None:
    if out.as_json:
        out.data(now)
        return
    for field in now.__struct_fields__:
        value = getattr(now, field)
        if field == "state":
            value = out.state(value)
        elif isinstance(value, bool):
            value = str(value).lower()
        out.print(f"{field:<20}{'–' if value is None else value}")


def why_command(options: Namespace) -> int:
    from arclog.cli.home import with_run
    from arclog.cli.render import clean, indented, moment, out_of
    from arclog.cli.runs.account import cause_lines, problem_lines

    out = out_of(options)

    async def work(api: Api, execution_id: str) -> int:
        answer = await api.why(execution_id)
        if out.as_json:
            out.data(answer)
            return OK
        out.print(f"{out.state(answer.state)}: {clean(answer.summary)}")
        for wait in answer.waits if len(answer.waits) > 1 else ():
            step = f"{wait.step}: " if wait.step else ""
            until = f" (until {moment(wait.until)})" if wait.until else ""
            out.print(f"  {out.paint(wait.what, 'cyan')}  {clean(step + wait.text)}{until}")
        lines = [] if answer.cause is None else cause_lines(answer.cause, out)
        lines += problem_lines(answer.problems, out, answer.cause)
        if lines:
            out.print(indented("\n".join(lines)))
        if not out.quiet:
            for command in answer.next:
                out.print(out.paint(f"  {command}", "dim"))
        return OK

    return with_run(options, work)


# ── version ──────────────────────────────────────────────────────────────────────────────────────────────────────


def version_arguments(parser: Parser) -> None:
    parser.epilog = "same as arclog --version"


def version_command(options: Namespace) -> int:
    from arclog import __version__

    if options.json:
        print(f'{{"version":"{__version__}"}}')
    else:
        print(f"arclog {__version__}")
    return OK
