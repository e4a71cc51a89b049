"""`arclog worker`: runs the commands of a server, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK, Usage
from arclog.cli.home import server_of

if TYPE_CHECKING:
    import asyncio

    from arclog.model.config.settings import Settings
    from arclog.ports.control import WorkerInfo
    from arclog.worker.runner import Worker


def worker_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "SIGTERM or Ctrl-C drains the worker: it takes no new work, returns its commands at the next task boundary and exits with\n"
        "code 0. Keychain entries are resolved here: `env` and `file` on this machine, `secret` in the store of --home."
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=("drain",),
        help="drain a worker, or all workers of a pool: they finish their tasks and stop",
    )
    parser.add_argument("id", metavar="ID", nargs="?", help="drain: the worker's id, as listed by `arclog workers`")
    parser.add_argument(
        "--pool",
        action="append",
        metavar="NAME",
        help="serve the steps of this pool (spec.pool); repeatable (default: `default`)",
    )
    parser.add_argument(
        "--slots", type=int, metavar="N", help="number of commands to run at a time (default: $ARCLOG_WORKER_SLOTS)"
    )


def worker_command(options: Any) -> int:
    if options.action == "drain":
        from arclog.cli.operations.pools import drain

        return drain(options)
    from arclog.wiring.process import run
    from arclog.wiring.settings import load_settings

    overrides = {
        "home": options.home,
        "client.server": options.server,
        "client.token_file": options.token_file,
        "worker.slots": options.slots,
    }
    settings = load_settings({name: value for name, value in overrides.items() if value is not None})
    if not server_of(settings):
        raise Usage("a worker requires a server", "arclog worker --server http://127.0.0.1:8420, or set ARCLOG_SERVER")
    pools = _pools(options.pool or ["default"])
    logging.basicConfig(level=logging.WARNING, format="arclog worker: %(message)s", stream=sys.stderr)
    return run(_Program(options).run(settings, pools))


class _Program:
    """Runs the worker and handles the signals that stop it."""

    def __init__(self, options: Any) -> None:
        self._quiet = options.quiet
        self._json = options.json
        self._worker: Worker | None = None
        self._task: asyncio.Task[Any] | None = None

    async def run(self, settings: Settings, pools: list[str]) -> int:
        import asyncio
        import signal

        from arclog.client.asynchronous import token_of
        from arclog.wiring.worker import remote_worker

        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._on_signal)
        url = server_of(settings)
        try:
            async with remote_worker(settings, url, token_of(settings), pools) as worker:
                self._worker = worker
                self._print_started(worker.info, url, settings.integer("worker.slots"))
                await worker.run()
        except asyncio.CancelledError:
            pass  # stopped before a server was reached, or stopped twice
        return OK

    def _on_signal(self) -> None:
        """The first signal drains the worker. A second one, or one before it is registered, stops it at once."""
        if self._worker is not None and not self._worker.is_leaving:
            self._worker.leave()
        elif self._task is not None:
            self._task.cancel()

    def _print_started(self, info: WorkerInfo, url: str, slots: int) -> None:
        if self._json:
            import json

            print(
                json.dumps({"worker_id": info.worker_id, "server": url, "pools": info.pools, "slots": slots}),
                flush=True,
            )
        elif not self._quiet:
            pools = ", ".join(info.pools)
            print(f"worker {info.worker_id} serves {url}, pool {pools}, {slots} commands at a time", flush=True)


def _pools(names: list[str]) -> list[str]:
    from arclog.playbook.schema import POOL_NAME

    for name in names:
        if POOL_NAME.fullmatch(name) is None:
            raise Usage(f"--pool {name!r} is not a valid pool name", "letters, digits, `_`, `.` and `-`, at most 64")
    return names
