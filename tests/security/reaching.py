"""What tasks reach of the network where `tasks.allow_networks` is a list: `python -m tests.security.reaching '{…}'` prints it.

There are two servers, one on an address that is allowed and one on an address that is not, and a hostile task.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from arclog.model.config.settings import Settings
from arclog.sandbox.child import kernel
from arclog.sandbox.confinement_settings import for_server
from arclog.sandbox.probe import PROMISES, held
from arclog.tools.python import PythonConfig, PythonTool
from arclog.tools.shell import ShellConfig, ShellTool
from arclog.wiring.process import protect_process
from tests.security.victim import become_ordinary, part_from_the_machine, pretend
from tests.unit.sandbox.support import context

ALLOWED, FORBIDDEN = "127.0.0.2", "127.0.0.3"
_CODE = Path(__file__).with_name("reaching_task.py")


class Server:
    """Answers with what it gets, and remembers who came."""

    def __init__(self, address: str) -> None:
        self.reached: list[str] = []
        self._tcp = socket.create_server((address, 0))
        self.port: int = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind((address, self.port))
        for serve in (self._serve, self._serve_datagrams):
            threading.Thread(target=serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._tcp.accept()
            self.reached.append("tcp")
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(65536):
                connection.sendall(data)

    def _serve_datagrams(self) -> None:
        while True:
            data, sender = self._udp.recvfrom(2000)
            self.reached.append("udp")
            self._udp.sendto(data, sender)


def _name_hosts(folder: Path) -> None:
    """Names for both addresses, which the resolver of this machine finds."""
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{ALLOWED} inside.test both.test\n{FORBIDDEN} outside.test both.test\n")
    hosts.chmod(0o644)
    kernel.mount(str(hosts), "/etc/hosts", None, kernel.MS_BIND)


async def _run(settings: Settings, folder: Path, args: dict[str, Any]) -> dict[str, Any]:
    facts = await held(settings, folder / "probe")
    promise = next(promise for promise in PROMISES if promise.name == "network")
    python, shell = PythonTool(settings, folder / "scratch"), ShellTool(settings, folder / "scratch")
    try:
        outcome = await python.run(PythonConfig(code=_CODE.read_text(), args=args), context(timeout_s=60.0))
        assert outcome.error is None, outcome.error
        failing = (
            f"import socket\ndef main():\n    socket.create_connection(({FORBIDDEN!r}, {args['forbidden'][1]}), 5)\n"
        )
        away = failing.replace(FORBIDDEN, "198.51.100.7")
        refused = await python.run(PythonConfig(code=away), context(timeout_s=60.0))
        call = "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5); s.sendall(b'x'); print(s.recv(1) == b'x')"
        ran = await shell.run(
            ShellConfig(command=[sys.executable, "-I", "-c", call, *map(str, args["allowed"])]), context(timeout_s=60.0)
        )
    finally:
        await python.close()
        await shell.close()
    return {
        "got": outcome.result,
        "rests_on": facts.rests_on(promise),
        "shell": "" if ran.error else ran.result["stdout"].strip(),
        "refused": "" if refused.error is None else refused.error.message,
    }


def main(spec: dict[str, Any]) -> None:
    """`spec`: folder (an empty one), user (root, ordinary), lacking ('', namespaces)."""
    part_from_the_machine()
    folder = Path(spec["folder"])
    _name_hosts(folder)
    if spec["user"] == "ordinary":
        folder.chmod(0o777)
        become_ordinary()
    if spec.get("lacking"):
        pretend(spec["lacking"])
    allowed, forbidden = Server(ALLOWED), Server(FORBIDDEN)
    settings = for_server(Settings({"home": str(folder / "home"), "tasks.allow_networks": f"{ALLOWED}/32"}))
    protect_process(settings)
    args = {
        "allowed": [ALLOWED, allowed.port],
        "forbidden": [FORBIDDEN, forbidden.port],
        "pid": os.getpid(),
    }
    answer = asyncio.run(_run(settings, folder, args))
    print(json.dumps({**answer, "reached": {"allowed": allowed.reached, "forbidden": forbidden.reached}}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
