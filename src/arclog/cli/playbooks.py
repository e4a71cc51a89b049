"""Commands about playbook files: check, plan. Neither needs a home."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from arclog.cli.exits import INVALID, OK

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.model.errors import Finding
    from arclog.plan.net import Plan


def check_arguments(parser: Parser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="playbook file; - is standard input")
    parser.add_argument("--strict", action="store_true", help="a warning is as bad as an error")
    parser.epilog = "example: arclog check flows/*.yaml --strict"


def check_command(options: Namespace) -> int:
    from arclog.cli import findings
    from arclog.cli.files import read
    from arclog.cli.home import settings_of
    from arclog.cli.render import counted, out_of
    from arclog.plan.build import build
    from arclog.wiring.kinds import installed_kinds

    out = out_of(options)
    settings = settings_of(options)
    found: list[tuple[Finding, str, str]] = []
    for file in options.files:
        body, name = read(file, settings)
        built = build(body, name, installed_kinds(), settings)
        found += [(one, built.source, name) for one in built.findings]
        found += [(one, built.source, name) for one in _missing_files(built.plan, file)]
    bad = any(one.severity == "error" or (options.strict and one.severity == "warning") for one, _, _ in found)
    if out.as_json:
        out.data([findings.as_data(one, name) for one, _, name in found])
        return INVALID if bad else OK
    for one, source, name in found:
        if not out.quiet or one.severity == "error" or (options.strict and one.severity == "warning"):
            out.say(findings.as_text(one, source, name, out) + "\n")
    if not out.quiet:
        what = options.files[0] if len(options.files) == 1 else counted(len(options.files), "file")
        verdict = findings.tally([one for one, _, _ in found]) or "nothing to say"
        out.say(f"{out.mark('failed' if bad else 'done')} {what}: {verdict}")
    return INVALID if bad else OK


def _missing_files(plan: Plan | None, file: str) -> list[Finding]:
    """Playbooks that a plan calls by file and that are not there."""
    import os

    from arclog.engine.bundle import beside, called_files
    from arclog.model.errors import Finding

    found: list[Finding] = []
    for called in () if plan is None else called_files(plan):
        where = beside("" if file == "-" else file, called)
        if plan is None or os.path.isfile(where):  # noqa: PTH113 - pathlib costs a start 2 ms
            continue
        tasks = [task for step in plan.steps for task in step.tasks if task.config.get("file") == called]
        message = f"file {called!r} is not there, or is no file (looked for {where})"
        hint = "a called file is named relative to the playbook that calls it"
        found += [Finding("missing-file", message, task.at, hint=hint) for task in tasks]
    return found


def plan_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="playbook file; - is standard input")
    parser.add_argument(
        "--format", choices=("text", "mermaid", "json"), help="how to draw it (default: text; json with --json)"
    )
    parser.epilog = "example: arclog plan flow.yaml --format mermaid"


def plan_command(options: Namespace) -> int:
    from arclog.cli.files import read
    from arclog.cli.home import settings_of
    from arclog.cli.render import clean, out_of
    from arclog.model.errors import PlaybookError
    from arclog.plan import draw
    from arclog.plan.build import build
    from arclog.wiring.kinds import installed_kinds

    out = out_of(options)
    settings = settings_of(options)
    body, name = read(options.file, settings)
    built = build(body, name, installed_kinds(), settings)
    if built.plan is None:
        raise PlaybookError(built.findings, built.source, name)
    form = options.format or ("json" if out.as_json else "text")
    if form == "json":
        out.data(draw.as_json(built.plan))
    else:
        drawn = draw.as_text(built.plan) if form == "text" else draw.as_mermaid(built.plan)
        out.say(clean(drawn.rstrip("\n")))
    return OK
