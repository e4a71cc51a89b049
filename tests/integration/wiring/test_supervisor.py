"""The supervisor of several server processes: how it starts them, and which exit code it has."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.wiring.serving.processes import supervise

CODE = 3


class Ending:
    """Stands in for a process that ends before it is ready. Its exit code is known a moment after its channel closed."""

    pid = 1
    returncode: int | None = None

    async def wait(self) -> int:
        for _ in range(20):
            await asyncio.sleep(0)
        self.returncode = CODE
        return CODE

    def send_signal(self, number: int) -> None:
        """It has ended already."""


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands of the processes, of which none becomes ready."""
    begun: list[tuple[str, ...]] = []

    async def started(*command: str, pass_fds: tuple[int, int], **__: Any) -> Ending:
        begun.append(command)
        with socket.socket(fileno=pass_fds[1]) as channel:
            channel.shutdown(socket.SHUT_RDWR)
            channel.detach()
        return Ending()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    return begun


def supervised() -> int:
    settings = Settings({"server.processes": 2, "server.port": 0, "store.url": "postgresql://nowhere/none"})
    return supervise(settings, lambda _: pytest.fail("it never started"))


@pytest.mark.usefixtures("commands")
def test_a_process_that_cannot_start_gives_the_exit_code() -> None:
    assert supervised() == CODE


def test_a_process_loads_no_module_of_the_working_directory(commands: list[tuple[str, ...]], tmp_path: Path) -> None:
    supervised()
    for module in ("arclog", "msgspec", "nkeys"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('planted')")
    command = [*commands[0][: commands[0].index("arclog") + 1], "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("arclog "), done.stderr
