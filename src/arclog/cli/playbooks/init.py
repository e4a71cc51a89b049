"""The command `init`: a playbook to begin with, and its tests. It needs no home."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser


def init_arguments(parser: Parser) -> None:
    parser.add_argument(
        "starter", metavar="TEMPLATE", nargs="?", help="name of a template; without it, templates are listed"
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the playbook (default: the template's)")
    parser.add_argument(
        "--folder", metavar="DIR", default=".", help="folder for the files (default: the working directory)"
    )
    parser.epilog = "example: arclog init etl orders && arclog test"


def init_command(options: Namespace) -> int:
    from difflib import get_close_matches
    from pathlib import Path

    from arclog.authoring.templates import STARTERS
    from arclog.cli.render import out_of
    from arclog.playbook.schema import NAME

    out = out_of(options)
    if options.starter is None:
        if out.as_json:
            out.data({name: starter.summary for name, starter in STARTERS.items()})
        else:
            out.say("\n".join(f"{name:<10}{starter.summary}" for name, starter in STARTERS.items()))
        return OK
    if options.starter not in STARTERS:
        near = get_close_matches(options.starter, STARTERS, n=1)
        perhaps = f"; did you mean {near[0]}?" if near else ""
        raise Usage(f"there is no template {options.starter!r}{perhaps}", f"there are: {', '.join(STARTERS)}")
    name = options.name or options.starter
    if NAME.match(name) is None:
        raise Usage(f"{name[:60]!r} is not a valid name: use letters, digits and _, and do not start with a digit")
    starter = STARTERS[options.starter]
    texts = {f"{name}.yaml": starter.playbook, f"{name}.test.yaml": starter.tests}
    folder = Path(options.folder)
    paths = {folder / file: text.replace("NAME", name) for file, text in texts.items()}
    for path in paths:
        if path.exists() or path.is_symlink():
            raise Usage(f"{path} already exists", "choose another name: arclog init TEMPLATE NAME")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in paths.items():
        with path.open("x", encoding="utf-8") as target:
            target.write(text)
        out.say(f"{out.mark('done')} {path}")
    if not out.quiet and not out.as_json:
        first, second = paths
        out.say(f"next: arclog check {first}; arclog test {second}; arclog run {first}")
    return OK
