"""The command that prints JSON Schemas. It needs no home."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser

_PLAYBOOK = ("playbook", "a playbook with the kinds that are installed here, for editors")


def schema_arguments(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of a schema; without it, schemas are listed")
    parser.epilog = "example: arclog schema playbook > playbook.schema.json"


def schema_command(options: Namespace) -> int:
    from arclog.cli.render import out_of
    from arclog.dialects.schemas import SCHEMAS

    out = out_of(options)
    known = dict([_PLAYBOOK, *((name, doc) for name, (doc, _) in SCHEMAS.items())])
    if options.name is None:
        if out.as_json:
            out.data(known)
        else:
            out.say("\n".join(f"{name:<14}{doc}" for name, doc in known.items()))
        return OK
    if options.name not in known:
        from difflib import get_close_matches

        near = get_close_matches(options.name, known, n=1)
        perhaps = f"; did you mean {near[0]}?" if near else ""
        raise Usage(f"there is no schema {options.name!r}{perhaps}", f"there are: {', '.join(known)}")
    if options.name == _PLAYBOOK[0]:
        from arclog.playbook.json_schema import json_schema
        from arclog.wiring.kinds import installed_kinds

        out.data(json_schema(installed_kinds()))
    else:
        out.data(SCHEMAS[options.name][1]())
    return OK
