"""A large download passes through; it does not pile up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from arclog.ports.results import Content
from tests.integration.tools.http.conftest import Task
from tests.servers.web import ReceivedRequest, Web, Wire

MIB = 1024 * 1024
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


class Sink:
    """Counts what is written, and how much memory there was at most."""

    def __init__(self) -> None:
        self.bytes = 0
        self.most = 0

    async def write(self, chunk: bytes) -> None:
        self.bytes += len(chunk)
        self.most = max(self.most, resident())

    async def commit(self) -> Content:
        return Content("0" * 64, self.bytes, self.bytes, "", "none", None, "")

    async def abandon(self) -> None:
        raise AssertionError("nothing went wrong")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_memory_is_flat(web: Web, task: Task, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    import zlib

    size = 300 * MIB
    sink = Sink()

    @web.route("/x")
    async def large(_: ReceivedRequest, wire: Wire) -> None:
        piece = bytes(MIB)
        if encoding == "identity":
            await wire.head(200, {"Content-Length": str(size), "Content-Type": "application/octet-stream"})
            for _n in range(size // MIB):
                await wire.raw(piece)
            return
        await wire.head(200, {"Content-Encoding": "gzip", "Content-Type": "application/octet-stream"})
        packer = zlib.compressobj(1, wbits=31)
        for _n in range(size // MIB):
            await wire.raw(packer.compress(piece))
        await wire.raw(packer.flush())
        wire.cut()

    def writer(*_: Any, **__: Any) -> Sink:
        return sink

    monkeypatch.setattr(task.results, "writer", writer)
    before = resident()
    outcome = await task(web.url("/x"), download=True, context={"timeout_s": 100.0})

    assert outcome.error is None
    assert sink.bytes == size
    assert sink.most - before < 40 * MIB
