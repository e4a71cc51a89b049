"""Options of commands that continue from a recorded run with something changed: its playbook, its workload, names of steps."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from arclog.cli.exits import Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser


def change_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--playbook", metavar="FILE", default="", help="continue with this playbook instead of the run's own"
    )
    parser.add_argument(
        "--set",
        dest="assignments",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="change a value of the run's workload; VALUE is JSON, else text (repeatable)",
    )
    parser.add_argument(
        "--map",
        dest="mapped",
        metavar="OLD=NEW",
        action="append",
        default=[],
        help="a step has another name in the new playbook (repeatable)",
    )


def mapping_of(options: Namespace) -> dict[str, str]:
    """What --map says: old name of a step to its new one."""
    found: dict[str, str] = {}
    for text in options.mapped:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise Usage(f"--map {text!r} is not of the form OLD=NEW (two step names)")
        found[old] = new
    if found and not options.playbook:
        raise Usage("--map names steps of a new playbook; give it with --playbook FILE")
    return found
