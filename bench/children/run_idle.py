"""HOME WORKERS SECONDS: a server in this process, workers that find no work over HTTP; prints what they ask of the store.

The settings come from the environment, as for `arclog server`. What the server asks for itself (timers, sweeps, leases of
its duties) is measured first, without workers, and subtracted.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections import Counter
from typing import Any

from arclog.model.config.settings import Settings
from arclog.ports.control import WorkerInfo
from arclog.wiring import backends, embedded
from arclog.wiring.process import run
from arclog.wiring.settings import load_settings

CALLS: Counter[str] = Counter()


class _Counted:
    """A store whose calls are counted."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def counted(*args: Any, **more: Any) -> Any:
            CALLS[name] += 1
            return await found(*args, **more)

        return counted


def _count() -> None:
    choose = backends.choose_store
    setattr(embedded, "choose_store", lambda *args: _Counted(choose(*args)))  # noqa: B010 - it is imported there, not its own


async def _idle(url: str, settings: Settings, number: int) -> None:
    """What a worker does without work."""
    from arclog.client.connection import Connection
    from arclog.client.control import RemoteControl
    from arclog.client.transport import Transport

    connection = Connection(url, settings)
    control = RemoteControl(Transport(connection))
    info = WorkerInfo(f"remote_idle-{number}", ("noop",), ("default",), slots=4, leaves=True)
    await control.register(info)

    async def claim() -> None:
        while True:
            assert await control.claim(info, 4, 20.0) == []

    async def revoked() -> None:
        while True:
            await control.revoked(info.worker_id, 20.0, ())

    try:
        await asyncio.gather(claim(), revoked())
    finally:
        await connection.close()


async def _measured(seconds: float) -> tuple[Counter[str], float]:
    before, cpu = Counter(CALLS), _cpu()
    await asyncio.sleep(seconds)
    return Counter(CALLS) - before, (_cpu() - cpu) / seconds


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main(home: str, count: int, seconds: float) -> dict[str, Any]:
    from arclog.wiring.serving.server import serve

    _count()
    settings = load_settings({"home": home, "server.port": 0})
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    serving = asyncio.ensure_future(serve(settings, with_worker=False, started=started, stop=stop))
    url = await started
    await asyncio.sleep(min(2.0, seconds))
    alone, cpu_alone = await _measured(seconds)
    workers = [asyncio.ensure_future(_idle(url, settings, number)) for number in range(count)]
    await asyncio.sleep(min(5.0, seconds))  # their first claims
    found, cpu = await _measured(seconds)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    stop.set()
    await serving
    # A call of the server's own varies by one or two from round to round.
    more = {name: number - alone[name] for name, number in found.items() if number > alone[name]}
    return {
        "queries_per_worker_s": sum(more.values()) / count / seconds,
        "calls": more,
        "alone_per_s": sum(alone.values()) / seconds,
        # Workers and server share this process.
        "cpu_percent": 100 * (cpu - cpu_alone),
    }


if __name__ == "__main__":
    print(json.dumps(run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))))
