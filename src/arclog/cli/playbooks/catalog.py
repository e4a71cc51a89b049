"""The command `catalog`: playbooks under paths, with versions that never change."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.ports.views.api import Api, CatalogEntry, CatalogVersion

_PAGE = 500
_WAYS = ("register", "list", "show", "diff", "archive")


def catalog_arguments(parser: Parser) -> None:
    parser.add_argument("action", metavar="register|list|show|diff|archive", choices=_WAYS, help="action")
    parser.add_argument("names", metavar="FILE|PATH", nargs="*", help="files to register, or a catalog path")
    parser.add_argument(
        "--all", action="store_true", help="list: include archived paths; show: all versions of the path"
    )
    parser.add_argument("--undo", action="store_true", help="archive: restore an archived path")
    parser.usage = (
        "arclog catalog register FILE...\n       arclog catalog list [PREFIX] [--all]\n"
        "       arclog catalog show PATH[@VERSION] [--all]\n       arclog catalog diff PATH[@OLDER] [NEWER]\n"
        "       arclog catalog archive PATH [--undo]"
    )
    parser.epilog = (
        "Registering the same content again keeps its version; changed content becomes the next version. `arclog run PATH` runs\n"
        "the newest version, `arclog run PATH@3` version 3. `diff PATH` compares the newest two versions.\n"
        "An archived path is not listed and cannot start runs. Its versions are kept; registering it again restores it."
    )


def catalog_command(options: Namespace) -> int:
    if options.all and options.action not in ("list", "show"):
        raise Usage("--all is an option of catalog list and catalog show")
    if options.undo and options.action != "archive":
        raise Usage("--undo is an option of catalog archive")
    least, most = {"register": (1, 1000), "list": (0, 1), "show": (1, 1), "diff": (1, 2), "archive": (1, 1)}[
        options.action
    ]
    if not least <= len(options.names) <= most:
        arguments = {"register": "the FILEs", "list": "at most a PREFIX", "diff": "a PATH and optionally a version"}
        raise Usage(
            f"catalog {options.action} takes {arguments.get(options.action, 'one PATH')}", "see `arclog catalog --help`"
        )
    commands = {"register": _register, "list": _list, "show": _show, "diff": _diff, "archive": _archive}
    return commands[options.action](options)


def _with_api(options: Namespace, work: Callable[[Api, Out], Awaitable[int]], *, writes: bool = False) -> int:
    from arclog.cli.home import exists, opened, settings_of
    from arclog.cli.render import out_of
    from arclog.model.errors import NotFound

    settings = settings_of(options)
    if not writes and not exists(settings):
        raise NotFound(f"nothing is registered yet in {settings.text('home')}; arclog catalog register FILE")

    async def go() -> int:
        async with opened(settings, read_only=not writes) as runtime:
            return await work(runtime.api, out_of(options))

    return asyncio.run(go())


def _register(options: Namespace) -> int:
    from arclog.cli.home import settings_of
    from arclog.cli.playbooks.files import files_beside, playbook_text
    from arclog.ports.views.api import RegisterRequest

    settings = settings_of(options)
    texts = [playbook_text(file, settings) for file in options.names]

    async def work(api: Api, out: Out) -> int:
        made = [
            await api.register(RegisterRequest(text, name, files_beside(text, name, settings))) for text, name in texts
        ]
        if out.as_json:
            out.data(made)
        elif not out.quiet:
            for (_, name), entry in zip(texts, made, strict=True):
                verb = "is" if entry.created else "is already registered as"
                out.print(f"{out.mark('done')} {name} {verb} {out.paint(f'{entry.path}@{entry.version}', 'bold')}")
        return OK

    return _with_api(options, work, writes=True)


def _list(options: Namespace) -> int:
    async def work(api: Api, out: Out) -> int:
        rows: list[CatalogEntry] = []
        prefix = options.names[0] if options.names else ""
        while page := await api.catalog(
            prefix=prefix, after=rows[-1].path if rows else "", limit=_PAGE, archived=options.all
        ):
            rows += page
        if out.as_json:
            out.data(rows)
        elif rows:
            out.print(_entries(rows, out))
        elif not out.quiet:
            out.print(f"nothing is registered{f' under {prefix}' if prefix else ''}; arclog catalog register FILE")
        return OK

    return _with_api(options, work)


def _entries(rows: list[CatalogEntry], out: Out) -> str:
    from arclog.cli.render import moment, table

    cells = [
        (row.path, str(row.version), moment(row.registered_at), "archived" if row.archived_at else "") for row in rows
    ]
    return table(("PATH", "VERSION", "REGISTERED", ""), cells, out.size()[0], out)


def _show(options: Namespace) -> int:
    from arclog.cli.playbooks.files import path_and_version

    path, version = path_and_version(options.names[0])
    if options.all and version:
        raise Usage("catalog show --all takes a PATH without a version")

    async def work(api: Api, out: Out) -> int:
        if options.all:
            versions: list[CatalogVersion] = []
            while page := await api.versions(path, before=versions[-1].version if versions else 0, limit=_PAGE):
                versions += page
            if out.as_json:
                out.data(versions)
            else:
                out.print(_versions(versions, out))
            return OK
        entry = await api.registered(path, version)
        if out.as_json:
            out.data(entry)
        else:
            out.print(entry.source.rstrip("\n"))
        return OK

    return _with_api(options, work)


def _versions(rows: list[CatalogVersion], out: Out) -> str:
    from arclog.cli.render import moment, table

    cells = [(str(row.version), moment(row.registered_at), row.digest[:12]) for row in rows]
    return table(("VERSION", "REGISTERED", "CONTENT"), cells, out.size()[0], out)


def _diff(options: Namespace) -> int:
    from arclog.cli.playbooks.files import path_and_version

    path, older = path_and_version(options.names[0])
    newer = path_and_version(f"{path}@{options.names[1]}")[1] if len(options.names) > 1 else 0

    async def work(api: Api, out: Out) -> int:
        newest = (await api.registered(path, newer)).version
        if not older and newest == 1:
            raise Usage(f"{path} has only one version; there is nothing to compare")
        difference = await api.difference(path, older or newest - 1, newest)
        if out.as_json:
            out.data(difference)
        elif difference.diff:
            colours = {"+": "green", "-": "red", "@": "dim"}
            lines = [
                out.paint(line, colours[line[0]]) if line[:1] in colours else line
                for line in difference.diff.splitlines()
            ]
            out.print("\n".join(lines))
        elif not out.quiet:
            out.print(f"{path}@{difference.older} and @{difference.newer} are the same text")
        return OK

    return _with_api(options, work)


def _archive(options: Namespace) -> int:
    async def work(api: Api, out: Out) -> int:
        entry = await api.archive(options.names[0], archived=not options.undo)
        if out.as_json:
            out.data(entry)
        elif not out.quiet:
            done = "is back" if options.undo else f"is archived; arclog catalog archive {entry.path} --undo restores it"
            out.print(f"{out.mark('done')} {entry.path} {done}")
        return OK

    return _with_api(options, work, writes=True)
