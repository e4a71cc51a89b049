"""The commands `backup` and `restore`: copy a home while it is in use, and create a home from such a copy."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from arclog.cli.exits import OK

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.wiring.homes.backup import Manifest


def backup_arguments(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="new folder for the copy")
    parser.epilog = (
        "Servers and runs on the home continue during the backup. The copy shows one moment in time; it is verified and synced to\n"
        "disk before the command ends. It does not contain the key of the secrets: store that separately.\n\n"
        "example: arclog backup --home /var/lib/arclog /backups/arclog-2026-01-31"
    )


def restore_arguments(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a folder written by `arclog backup`")
    parser.epilog = (
        "The home must not contain runs. Unfinished runs continue from the state in the backup as soon as a server starts; tasks\n"
        "that were in progress run again.\n\n"
        "example: arclog restore --home /var/lib/arclog /backups/arclog-2026-01-31"
    )


def backup_command(options: Namespace) -> int:
    from arclog.cli.home import settings_of
    from arclog.cli.render import out_of
    from arclog.wiring.homes.backup import back_up

    made = back_up(settings_of(options), Path(options.folder))
    _print_manifest(out_of(options), made, options.folder, f"backed up to {options.folder}")
    return OK


def restore_command(options: Namespace) -> int:
    from arclog.cli.home import settings_of
    from arclog.cli.render import out_of
    from arclog.wiring.homes.backup import restore

    settings = settings_of(options)
    _print_manifest(
        out_of(options), restore(settings, Path(options.folder)), options.folder, f"restored to {settings.text('home')}"
    )
    return OK


def _print_manifest(out: Out, manifest: Manifest, folder: str, done: str) -> None:
    import msgspec

    if out.as_json:
        out.data({"folder": folder, **msgspec.to_builtins(manifest)})
    elif not out.quiet:
        more = ", sealed secrets without their key" if manifest.secrets else ""
        size = f"{manifest.bytes / 1024 / 1024:.1f} MiB of log, {manifest.results} stored results{more}"
        out.print(f"{done}: {size}, as of {manifest.taken_at}")
