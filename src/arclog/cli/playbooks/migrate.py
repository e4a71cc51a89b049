"""The command `migrate`: converts playbooks of older releases. It needs no home."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import FAILED, OK, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arclog.authoring.migrate import Migration
    from arclog.cli.args import Parser
    from arclog.model.config.settings import Settings

#: Minimum number of files for which several processes are faster.
_MANY = 100


def migrate_arguments(parser: Parser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="playbook file; - is standard input")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--write", action="store_true", help="change the files instead of printing the result")
    how.add_argument("--diff", action="store_true", help="print what would change")
    parser.epilog = """\
Forms that need a decision of the author are listed on standard error with their line; the exit code is then 1.

example: arclog migrate old.yaml > new.yaml"""


def migrate_command(options: Namespace) -> int:
    from arclog.cli.home import settings_of
    from arclog.cli.playbooks.files import rewrite
    from arclog.cli.playbooks.findings import as_data, as_text
    from arclog.cli.render import Out, out_of, printable

    out = out_of(options)
    settings = settings_of(options)
    if len(options.files) > 1 and not (options.write or options.diff or out.as_json):
        raise Usage("several files: use --write, --diff or --json")
    if options.write and "-" in options.files:
        raise Usage("--write changes files and cannot be used with standard input")
    undecided = 0
    reports: list[dict[str, Any]] = []
    for file, text, name, done in _migrated(options.files, settings):
        undecided += len(done.undecided)
        if options.write and done.text != text:
            rewrite(file, done.text)
        if out.as_json:
            reports.append(
                {
                    "file": name,
                    "changed": done.text != text,
                    "changes": [{"line": line, "change": change} for line, change in done.changes],
                    "undecided": [as_data(finding, name) for finding in done.undecided],
                    "text": done.text,
                }
            )
            continue
        if options.diff:
            out.write(difference(text, done.text, name, "migrated"))
        elif options.write:
            if not out.quiet:
                out.print(f"{out.mark('failed' if done.undecided else 'done')} {name}: {len(done.changes)} changed")
        else:
            out.write(done.text)
        err = Out(stream=sys.stderr)
        for finding in done.undecided:
            sys.stderr.write(printable(as_text(finding, done.text, name, err) + "\n\n", sys.stderr))
    if out.as_json:
        out.data(reports if len(options.files) > 1 else reports[0])
    return FAILED if undecided else OK


def _migrated(files: Sequence[str], settings: Settings) -> Iterator[tuple[str, str, str, Migration]]:
    """Each file with its text, its name in messages, and its migration; many files are distributed over processes."""
    from functools import partial

    migrate = partial(_migrate_file, settings=settings)
    if len(files) < _MANY:
        yield from map(migrate, files)
        return
    import os
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    context = get_context("forkserver")
    with ProcessPoolExecutor(os.cpu_count() or 1, context, initializer=_seldom_collect_garbage) as pool:
        yield from pool.map(migrate, files, chunksize=10)


def _seldom_collect_garbage() -> None:
    """Run the garbage collector rarely: after every 700 new objects it takes a tenth of the time, and trees have no
    cycles.
    """
    import gc

    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _migrate_file(file: str, settings: Settings) -> tuple[str, str, str, Migration]:
    from arclog.authoring.migrate import Migration, migrate
    from arclog.cli.playbooks.check import TEST_SUFFIXES
    from arclog.cli.playbooks.files import playbook_text
    from arclog.wiring.kinds import installed_kinds

    text, name = playbook_text(file, settings)
    if file.endswith(TEST_SUFFIXES):
        return file, text, name, Migration(text)  # there are no older forms of tests
    return file, text, name, migrate(text, name, installed_kinds(), settings)


def difference(before: str, after: str, name: str, label: str) -> str:
    """A unified diff of two texts of one file."""
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), name, f"{name} ({label})")
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)
