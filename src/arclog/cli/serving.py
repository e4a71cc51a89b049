"""Commands that serve: `server` (the control plane; workers come over HTTP) and `up` (with a worker in the same process)."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.model.settings import Settings

_EPILOG = (
    "Runs that a process left which is gone go on. Ctrl-C or SIGTERM stops it: new work is refused, requests under way\n"
    "are answered, streams end. A second Ctrl-C does not wait."
)


def up_arguments(parser: Parser) -> None:
    _arguments(parser)
    parser.epilog = f"{_EPILOG}\n\nexample: arclog up --port 8420"


def server_arguments(parser: Parser) -> None:
    _arguments(parser)
    parser.epilog = f"{_EPILOG}\n\nexample: arclog server --port 0"


def _arguments(parser: Parser) -> None:
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on (default: server.host, 127.0.0.1)")
    parser.add_argument(
        "--port", metavar="PORT", help="port to listen on; 0 takes a free one (default: server.port, 8420)"
    )


def up_command(options: Namespace) -> int:
    return _serve(options, with_worker=True)


def server_command(options: Namespace) -> int:
    return _serve(options, with_worker=False)


def _serve(options: Namespace, *, with_worker: bool) -> int:
    from arclog.cli.home import settings_of
    from arclog.cli.render import out_of
    from arclog.wiring.loop import run

    settings = settings_of(options)
    given = {"server__host": options.host, "server__port": options.port}
    settings = settings.replaced(**{name: value for name, value in given.items() if value is not None})
    if settings.integer("server.port") > 65535:
        raise Usage(f"there is no port {settings.integer('server.port')}; the last one is 65535")
    run(_served(settings, out_of(options), with_worker=with_worker))
    return OK


async def _served(settings: Settings, out: Out, *, with_worker: bool) -> None:
    from arclog.model.extras import required

    with required("server", "the server"):
        from arclog.wiring.server import serve

    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(serve(settings, with_worker=with_worker, started=started))
    await asyncio.wait((serving, started), return_when=asyncio.FIRST_COMPLETED)
    if started.done() and not started.cancelled():
        _announce(started.result(), settings, out, with_worker=with_worker)
    await serving


def _announce(url: str, settings: Settings, out: Out, *, with_worker: bool) -> None:
    home = settings.text("home")
    if out.as_json:
        told: dict[str, Any] = {"url": url, "home": home, "worker": with_worker}
        out.data(told)
    elif out.quiet:
        out.say(url)
    else:
        what = "API and worker" if with_worker else f"API only; workers: arclog worker --server {url}"
        out.say(f"{out.paint(url, 'bold')}  ({what}; runs in {home}; Ctrl-C stops)")
