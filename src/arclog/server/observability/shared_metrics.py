"""Metrics of several processes behind one address: whichever is asked answers for all of them.

Each process writes its own figures to a file now and then, and when it ends. Counts and times of all files are added up, also those
of processes that are gone, so that no sum ever falls; what stands in the store is told by the one that was asked.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

from arclog.server.observability.metrics import Metrics

_EVERY_S = 1.0
_SUMMED = ("counter", "histogram")
#: Gauges of which each process has a part.
_PARTS = frozenset({"arclog_events_publishing", "arclog_http_requests_open", "arclog_http_streams_open"})


class SharedMetrics:
    def __init__(self, metrics: Metrics, folder: Path) -> None:
        self._metrics = metrics
        self._folder = folder
        self._own = folder / str(os.getpid())

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Write them meanwhile."""
        writing = asyncio.ensure_future(self._write_on())
        try:
            yield
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self._write()

    async def text(self) -> bytes:
        own = await self._metrics.text()
        return generate_latest(_Sums(own.decode(), self._others()))

    def _others(self) -> dict[int, str]:
        """What the other processes wrote, by their ids."""
        found: dict[int, str] = {}
        for path in self._folder.iterdir():
            if path.name.isdigit() and path != self._own:
                with suppress(OSError):
                    found[int(path.name)] = path.read_text()
        return found

    async def _write_on(self) -> None:
        while True:
            self._write()
            await asyncio.sleep(_EVERY_S)

    def _write(self) -> None:
        # The supervisor removes the folder when all have ended, or was killed and a cleaner did.
        with suppress(OSError):
            draft = self._own.with_suffix(".new")
            draft.write_bytes(generate_latest(self._metrics.registry))
            draft.replace(self._own)


class _Sums(CollectorRegistry):
    """The families of one process, with the sums of all."""

    def __init__(self, own: str, others: dict[int, str]) -> None:
        super().__init__()
        self.register(_Families(own, others))


class _Families(Collector):
    def __init__(self, own: str, others: dict[int, str]) -> None:
        self._own = own
        self._others = others

    def collect(self) -> list[Metric]:
        families = {family.name: family for family in text_string_to_metric_families(self._own)}
        for pid, text in self._others.items():
            for family in text_string_to_metric_families(text):
                if family.type in _SUMMED or (family.name in _PARTS and _is_there(pid)):
                    _add(
                        families.setdefault(family.name, Metric(family.name, family.documentation, family.type)), family
                    )
        return list(families.values())


def _add(into: Metric, family: Metric) -> None:
    known = {(sample.name, tuple(sorted(sample.labels.items()))): n for n, sample in enumerate(into.samples)}
    for sample in family.samples:
        if sample.name.endswith("_created"):
            continue  # the beginning of each is its own
        at = known.get((sample.name, tuple(sorted(sample.labels.items()))))
        if at is None:
            into.samples.append(sample)
        else:
            into.samples[at] = into.samples[at]._replace(value=into.samples[at].value + sample.value)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
