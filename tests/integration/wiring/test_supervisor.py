"""The supervisor of several server processes: which exit code it has."""

from __future__ import annotations

import asyncio
import socket
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


def test_a_process_that_cannot_start_gives_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    async def started(*_: Any, pass_fds: tuple[int, int], **__: Any) -> Ending:
        with socket.socket(fileno=pass_fds[1]) as channel:
            channel.shutdown(socket.SHUT_RDWR)
            channel.detach()
        return Ending()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    settings = Settings({"server.processes": 2, "server.port": 0, "store.url": "postgresql://nowhere/none"})
    assert supervise(settings, lambda _: pytest.fail("it never started")) == CODE
