"""What the rules share: a result store, and short ways to fill and read it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.ports.results import Content, Results, StoredBlob

MakeResults = Callable[[Settings], Results]

TENANT = "acme"


def sha256_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


async def stored(results: Results, body: bytes, tenant: str = TENANT, step: int = 70_000) -> Content:
    """Store bytes, a few at a time."""
    writer = results.writer(tenant, content_type="text/plain")
    for at in range(0, len(body), step):
        await writer.write(body[at : at + step])
    return await writer.commit()


async def listed(results: Results, items: Sequence[Any], tenant: str = TENANT, step: int = 100) -> Content:
    """Store a list, some items at a time."""
    writer = results.writer(tenant, listed=True)
    for at in range(0, len(items), step):
        await writer.add(items[at : at + step])
    return await writer.commit()


async def read(results: Results, sha256: str, start: int = 0, end: int | None = None, tenant: str = TENANT) -> bytes:
    return b"".join([chunk async for chunk in results.chunks(tenant, sha256, start, end)])


async def everything(results: Results) -> list[StoredBlob]:
    return sorted([each async for each in results.all()], key=lambda each: (each.tenant, each.sha256))


class Rules:
    """Base of all groups of rules: the fixtures."""

    @pytest.fixture
    def make_results(self) -> MakeResults:
        pytest.fail("a subclass of ResultsContract gives make_results(settings)")

    @pytest.fixture
    async def results(self, make_results: MakeResults) -> AsyncIterator[Results]:
        made = make_results(Settings())
        yield made
        await made.close()
