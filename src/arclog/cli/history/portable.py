"""`arclog export` and `arclog import`: runs as files."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, BinaryIO

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.ports.views.api import Api
    from arclog.ports.views.history import Imported


def export_arguments(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="execution id, its first digits, or last")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="output file; - is standard output")
    parser.epilog = (
        "The file contains the log, the plan, the playbook and the stored results, each with its checksum. It contains no secrets.\n\n"
        "example: arclog export last -o run.arclog"
    )


def export_command(options: Namespace) -> int:
    import os
    import sys
    from pathlib import Path

    from arclog.cli.home import with_run
    from arclog.cli.render import out_of

    out = out_of(options)
    target = Path(options.output)
    if options.output != "-" and target.is_dir():
        raise Usage(f"{target} is a folder; name a file: -o {target / 'run.arclog'}")

    async def work(api: Api, execution_id: str) -> int:
        if options.output == "-":
            async for chunk in api.export(execution_id):
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            return OK
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        size = 0
        try:
            file = unfinished.open("wb")
        except OSError as problem:
            raise Usage(f"cannot write {target}: {problem.strerror}") from problem
        try:
            with file:
                async for chunk in api.export(execution_id):
                    size += len(chunk)
                    file.write(chunk)
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
        if out.as_json:
            out.data({"execution_id": execution_id, "file": str(target), "bytes": size})
        elif not out.quiet:
            out.print(f"{target}: run {execution_id}, {size:,} bytes")
        return OK

    return with_run(options, work)


def import_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="a file written by `arclog export`")
    parser.epilog = (
        "The run keeps its id and is read-only here: it can be shown, replayed, compared, forked and simulated.\n"
        "A damaged file is refused; the message names the damaged part.\n\n"
        "example: arclog import run.arclog"
    )


def import_command(options: Namespace) -> int:
    import asyncio
    from pathlib import Path

    from arclog.cli.home import opened, settings_of
    from arclog.cli.render import counted, out_of

    out, settings = out_of(options), settings_of(options)

    async def work(file: BinaryIO) -> Imported:
        async with opened(settings) as runtime:
            imported: Imported = await runtime.api.import_run(file)
            return imported

    try:
        file = Path(options.file).open("rb")  # noqa: SIM115 - closed below, behind what may go wrong here
    except OSError as problem:
        raise Usage(f"cannot read {options.file}: {problem.strerror}") from problem
    with file:
        run = asyncio.run(work(file))
    if out.as_json:
        out.data(run)
    elif not out.quiet:
        before = "" if run.created else " (already imported)"
        parts = f"{counted(run.events, 'event')}, {counted(run.results, 'stored result')}"
        out.print(f"run {run.execution_id}: {parts}{before}")
        if run.missing:
            more = f" and {len(run.missing) - 10} more" if len(run.missing) > 10 else ""
            out.notice(
                f"{counted(len(run.missing), 'stored result')} had been removed before the export and cannot be read here: "
                f"{', '.join(run.missing[:10])}{more}"
            )
    return OK
