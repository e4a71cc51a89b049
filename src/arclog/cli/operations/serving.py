"""Commands that serve: `server` (the control plane; workers connect over HTTP) and `up` (with a worker in the same
process).
"""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.model.config.settings import Settings
    from arclog.wiring.serving.processes import Member

_EPILOG = (
    "Continues the runs of processes that are gone. Ctrl-C or SIGTERM stops the server: it refuses new work, finishes requests\n"
    "in progress and ends streams. A second Ctrl-C stops it immediately."
)


def up_arguments(parser: Parser) -> None:
    _arguments(parser)
    parser.epilog = f"{_EPILOG}\n\nexample: arclog up --port 8420"


def server_arguments(parser: Parser) -> None:
    _arguments(parser)
    parser.add_argument(
        "--processes",
        metavar="N",
        help="number of server processes on this address, requires PostgreSQL (default: server.processes, 1)",
    )
    parser.epilog = f"{_EPILOG} SIGHUP replaces the processes one after the other.\n\nexample: arclog server --port 0"


def _arguments(parser: Parser) -> None:
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on (default: server.host, 127.0.0.1)")
    parser.add_argument(
        "--port", metavar="PORT", help="port to listen on; 0 selects a free port (default: server.port, 8420)"
    )


def up_command(options: Namespace) -> int:
    return _serve(options, with_worker=True)


def server_command(options: Namespace) -> int:
    return _serve(options, with_worker=False)


def _serve(options: Namespace, *, with_worker: bool) -> int:
    from arclog.cli.home import settings_of
    from arclog.cli.render import out_of
    from arclog.wiring.process import run

    settings = settings_of(options)
    overrides = {"server__host": options.host, "server__port": options.port}
    settings = settings.replaced(**{name: value for name, value in overrides.items() if value is not None})
    if settings.integer("server.port") > 65535:
        raise Usage(f"{settings.integer('server.port')} is not a port; the highest is 65535")
    member = None
    if not with_worker:
        if options.processes is not None:
            settings = settings.replaced(server__processes=options.processes)
        if settings.integer("server.processes") > 1:
            from arclog.wiring.serving.processes import member_of, supervise

            member = member_of(os.environ)
            if member is None:
                return supervise(settings, lambda url: _announce(url, settings, out_of(options), with_worker=False))
    run(_served(settings, out_of(options), with_worker=with_worker, member=member))
    return OK


async def _served(settings: Settings, out: Out, *, with_worker: bool, member: Member | None = None) -> None:
    from arclog.model.config.extras import required

    with required("server", "the server"):
        from arclog.wiring.serving.server import serve

    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    serving = asyncio.ensure_future(serve(settings, with_worker=with_worker, started=started, stop=stop, member=member))
    await asyncio.wait((serving, started), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        pass
    elif member is not None:
        member.is_ready()
        released = asyncio.ensure_future(member.released())
        released.add_done_callback(lambda _: stop.set())
    else:
        _announce(started.result(), settings, out, with_worker=with_worker)
    await serving


def _announce(url: str, settings: Settings, out: Out, *, with_worker: bool) -> None:
    home = settings.text("home")
    if out.as_json:
        announcement: dict[str, Any] = {"url": url, "home": home, "worker": with_worker}
        out.data(announcement)
    elif out.quiet:
        out.print(url)
    else:
        from arclog.server.console import is_built

        parts = "console, API" if is_built() else "API (the console is not built: ./x ui build)"
        parts_text = f"{parts} and worker" if with_worker else f"{parts}; workers: arclog worker --server {url}"
        out.print(f"{out.paint(url, 'bold')}  ({parts_text}; runs in {home}; press Ctrl-C to stop)")
