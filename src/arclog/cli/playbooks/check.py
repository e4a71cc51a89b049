"""Commands about playbook files: check, plan, schema. None of them needs a home."""

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

# ── check ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

#: Suffixes of test files: patterns such as *.yaml match them, too.
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
    from arclog.authoring.findings import as_github, as_sarif
    from arclog.cli.home import settings_of
    from arclog.cli.playbooks import findings
    from arclog.cli.render import counted, out_of

    out = out_of(options)
    settings = settings_of(options)
    form = options.format or ("json" if out.as_json else "text")
    problems: list[tuple[Finding, str, str]] = []
    for file in options.files:
        problems += _checked(file, settings, out, fix=options.fix)
    bad = any(
        finding.severity == "error" or (options.strict and finding.severity == "warning") for finding, _, _ in problems
    )
    if form == "json":
        out.data([findings.as_data(finding, name) for finding, _, name in problems])
    elif form == "sarif":
        out.data(as_sarif([(finding, name) for finding, _, name in problems]))
    elif form == "github":
        for finding, _, name in problems:
            out.print(as_github(finding, name))
    else:
        for finding, source, name in problems:
            if not out.quiet or finding.severity == "error" or (options.strict and finding.severity == "warning"):
                out.print(findings.as_text(finding, source, name, out) + "\n")
        if not out.quiet:
            checked = options.files[0] if len(options.files) == 1 else counted(len(options.files), "file")
            verdict = findings.tally([finding for finding, _, _ in problems]) or "no problems found"
            out.print(f"{out.mark('failed' if bad else 'done')} {checked}: {verdict}")
    return INVALID if bad else OK


def _checked(file: str, settings: Settings, out: Out, *, fix: bool) -> list[tuple[Finding, str, str]]:
    """Return the problems of a file; with `fix`, those that remain after the repairs."""
    from arclog.authoring.playbook_files import FilesBeside
    from arclog.cli.exits import Usage
    from arclog.cli.playbooks.files import read, rewrite
    from arclog.plan.build import build
    from arclog.wiring.kinds import installed_kinds

    body, name = read(file, settings)
    if file.endswith(TEST_SUFFIXES):
        return _checked_tests(body, name, settings)
    beside = FilesBeside(settings).of(file)
    built = build(body, name, installed_kinds(), settings, beside, thorough=True)
    if fix:
        from arclog.authoring.findings import fixed

        if file == "-":
            raise Usage("--fix changes files and cannot be used with standard input")
        text, done = fixed(
            body.decode("utf-8", "replace"),
            lambda text: build(text, name, installed_kinds(), settings, beside, thorough=True).findings,
        )
        if done:
            rewrite(file, text)
            for finding in done:
                out.notice(f"{name}:{finding.at}: corrected: {finding.message}; {finding.hint}")
            built = build(text, name, installed_kinds(), settings, beside, thorough=True)
    findings = [*built.findings, *_missing_files(built.plan, file)]
    return [(finding, built.source, name) for finding in findings]


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
    """Playbooks that a plan calls by file and that do not exist."""
    import os

    from arclog.engine.runs.catalog import called_files
    from arclog.model.errors import Finding
    from arclog.playbook.files import beside

    missing: list[Finding] = []
    for called in () if plan is None else called_files(plan):
        where = beside("" if file == "-" else file, called)
        if plan is None or os.path.isfile(where):  # noqa: PTH113 - pathlib costs a start 2 ms
            continue
        tasks = [task for step in plan.steps for task in step.tasks if task.config.get("file") == called]
        message = f"file {called!r} does not exist or is not a file (looked for {where})"
        hint = "a called file is named relative to the playbook that calls it"
        missing += [Finding("missing-file", message, task.at, hint=hint) for task in tasks]
    return missing


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
    from arclog.authoring.playbook_files import FilesBeside
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
        out.print(clean(drawn.rstrip("\n")))
    return OK


def _expanded(plan: Plan, out: Out) -> int:
    from arclog.cli.render import clean
    from arclog.plan.expanded import as_playbook
    from arclog.playbook.load import as_yaml

    written = as_playbook(plan)
    if out.as_json:
        out.data(written)
    else:
        out.print(clean(as_yaml(written).rstrip("\n")))
    return OK


# ── schema ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The command that prints JSON Schemas. It needs no home.

_PLAYBOOK = ("playbook", "a playbook with the kinds that are installed here, for editors")


def schema_arguments(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of a schema; without it, schemas are listed")
    parser.epilog = "example: arclog schema playbook > playbook.schema.json"


def schema_command(options: Namespace) -> int:
    from arclog.cli.render import out_of
    from arclog.dialects.schemas import SCHEMAS

    out = out_of(options)
    documents = dict([_PLAYBOOK, *((name, doc) for name, (doc, _) in SCHEMAS.items())])
    if options.name is None:
        if out.as_json:
            out.data(documents)
        else:
            out.print("\n".join(f"{name:<14}{doc}" for name, doc in documents.items()))
        return OK
    if options.name not in documents:
        from arclog.model.data.suggestions import did_you_mean

        suggestion = did_you_mean(options.name, documents)
        raise Usage(f"there is no schema {options.name!r}{suggestion}", f"there are: {', '.join(documents)}")
    if options.name == _PLAYBOOK[0]:
        from arclog.playbook.json_schema import json_schema
        from arclog.wiring.kinds import installed_kinds

        out.data(json_schema(installed_kinds()))
    else:
        out.data(SCHEMAS[options.name][1]())
    return OK
