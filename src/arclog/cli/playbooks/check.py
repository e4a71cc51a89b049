"""Commands about playbook files: check, plan. Neither needs a home."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from arclog.cli.exits import INVALID, OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.model.config.settings import Settings
    from arclog.model.errors import Finding
    from arclog.plan.net import Plan


#: Files of tests: they stand beside playbooks, and patterns such as *.yaml name them, too.
TEST_SUFFIXES = (".test.yaml", ".test.yml")


def check_arguments(parser: Parser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="playbook file; - is standard input")
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")
    parser.add_argument(
        "--fix", action="store_true", help="correct misspelt names in the files; comments and layout are kept"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "sarif", "github"),
        help="text (default), json, SARIF for code scanning, or annotations for GitHub's workflow logs",
    )
    parser.epilog = "example: arclog check flows/*.yaml --strict"


def check_command(options: Namespace) -> int:
    from arclog.authoring import formats
    from arclog.cli.home import settings_of
    from arclog.cli.playbooks import findings
    from arclog.cli.render import counted, out_of

    out = out_of(options)
    settings = settings_of(options)
    form = options.format or ("json" if out.as_json else "text")
    found: list[tuple[Finding, str, str]] = []
    for file in options.files:
        found += _checked(file, settings, out, fix=options.fix)
    bad = any(one.severity == "error" or (options.strict and one.severity == "warning") for one, _, _ in found)
    if form == "json":
        out.data([findings.as_data(one, name) for one, _, name in found])
    elif form == "sarif":
        out.data(formats.as_sarif([(one, name) for one, _, name in found]))
    elif form == "github":
        for one, _, name in found:
            out.say(formats.as_github(one, name))
    else:
        for one, source, name in found:
            if not out.quiet or one.severity == "error" or (options.strict and one.severity == "warning"):
                out.say(findings.as_text(one, source, name, out) + "\n")
        if not out.quiet:
            what = options.files[0] if len(options.files) == 1 else counted(len(options.files), "file")
            verdict = findings.tally([one for one, _, _ in found]) or "no problems found"
            out.say(f"{out.mark('failed' if bad else 'done')} {what}: {verdict}")
    return INVALID if bad else OK


def _checked(file: str, settings: Settings, out: Out, *, fix: bool) -> list[tuple[Finding, str, str]]:
    """The problems of a file, after what can be repaired was."""
    from arclog.authoring.beside import FilesBeside
    from arclog.cli.exits import Usage
    from arclog.cli.playbooks.files import read
    from arclog.plan.build import build
    from arclog.wiring.kinds import installed_kinds

    body, name = read(file, settings)
    if file.endswith(TEST_SUFFIXES):
        return _checked_tests(body, name, settings)
    beside = FilesBeside(settings).of(file)
    built = build(body, name, installed_kinds(), settings, beside, thorough=True)
    if fix:
        from arclog.authoring.fixes import fixed

        if file == "-":
            raise Usage("--fix changes files and cannot be used with standard input")
        text, done = fixed(
            body.decode("utf-8", "replace"),
            lambda text: build(text, name, installed_kinds(), settings, beside, thorough=True).findings,
        )
        if done:
            with open(file, "w", encoding="utf-8", newline="") as target:  # noqa: PTH123 - pathlib costs a start 2 ms
                target.write(text)
            for finding in done:
                out.notice(f"{name}:{finding.at}: corrected: {finding.message}; {finding.hint}")
            built = build(text, name, installed_kinds(), settings, beside, thorough=True)
    found = [(one, built.source, name) for one in built.findings]
    return found + [(one, built.source, name) for one in _missing_files(built.plan, file)]


def _checked_tests(body: bytes, name: str, settings: Settings) -> list[tuple[Finding, str, str]]:
    """The problems of a file of tests."""
    from arclog.model.errors import PlaybookError
    from arclog.testing.playbook_tests.cases import read_cases

    try:
        read_cases(body, name, settings)
    except PlaybookError as error:
        return [(finding, error.source, name) for finding in error.findings]
    return []


def _missing_files(plan: Plan | None, file: str) -> list[Finding]:
    """Playbooks that a plan calls by file and that are not there."""
    import os

    from arclog.engine.runs.catalog import called_files
    from arclog.model.errors import Finding
    from arclog.playbook.files import beside

    found: list[Finding] = []
    for called in () if plan is None else called_files(plan):
        where = beside("" if file == "-" else file, called)
        if plan is None or os.path.isfile(where):  # noqa: PTH113 - pathlib costs a start 2 ms
            continue
        tasks = [task for step in plan.steps for task in step.tasks if task.config.get("file") == called]
        message = f"file {called!r} does not exist or is not a file (looked for {where})"
        hint = "a called file is named relative to the playbook that calls it"
        found += [Finding("missing-file", message, task.at, hint=hint) for task in tasks]
    return found


def plan_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="playbook file; - is standard input")
    parser.add_argument(
        "--format", choices=("text", "mermaid", "svg", "json"), help="output format (default: text; json with --json)"
    )
    parser.add_argument(
        "--expanded",
        action="store_true",
        help="the playbook in canonical form: short forms written out, layers resolved (YAML; JSON with --json)",
    )
    parser.epilog = "examples: arclog plan flow.yaml --format mermaid; arclog plan flow.yaml --expanded"


def plan_command(options: Namespace) -> int:
    from arclog.authoring.beside import FilesBeside
    from arclog.cli.home import settings_of
    from arclog.cli.playbooks.files import read
    from arclog.cli.render import clean, out_of
    from arclog.model.errors import PlaybookError
    from arclog.plan import draw
    from arclog.plan.build import build
    from arclog.wiring.kinds import installed_kinds

    out = out_of(options)
    settings = settings_of(options)
    body, name = read(options.file, settings)
    built = build(body, name, installed_kinds(), settings, FilesBeside(settings).of(options.file))
    if built.plan is None:
        raise PlaybookError(built.findings, built.source, name)
    if options.expanded:
        if options.format is not None:
            raise Usage("use either --expanded or --format, not both")
        return _expanded(built.plan, out)
    form = options.format or ("json" if out.as_json else "text")
    if form == "json":
        out.data(draw.as_json(built.plan))
    elif form == "svg":
        from arclog.authoring.svg import as_svg

        out.write(as_svg(built.plan))
    else:
        drawn = draw.as_text(built.plan) if form == "text" else draw.as_mermaid(built.plan)
        out.say(clean(drawn.rstrip("\n")))
    return OK


def _expanded(plan: Plan, out: Out) -> int:
    from arclog.cli.render import clean
    from arclog.plan.expanded import as_playbook
    from arclog.playbook.load import as_yaml

    written = as_playbook(plan)
    if out.as_json:
        out.data(written)
    else:
        out.say(clean(as_yaml(written).rstrip("\n")))
    return OK
