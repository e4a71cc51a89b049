"""A server's process under a memory limit, for `test_quarantine`: it is killed when it takes more, as the kernel would."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from arclog.model.settings import Settings
from arclog.ports.api import ExecuteRequest, SignalRequest
from arclog.wiring.embedded import embedded

MIB = 1024 * 1024
PAGE = os.sysconf("SC_PAGE_SIZE")
HEALTHY = "{metadata: {name: healthy}, workflow: [{step: start, tool: {kind: noop, data: well}}]}"
#: bounds that keep nothing from dying, and those of every day
LOOSE = {
    "expr.max_bytes": 4096 * MIB,
    "decision.max_bytes": 4096 * MIB,
    "expr.max_work": 10**9,
    "decision.max_work": 10**9,
}


def watch(limit: int) -> None:
    while True:
        if int(Path("/proc/self/statm").read_text().split()[1]) * PAGE > limit:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)


async def main(home: str, what: str, argument: str) -> None:
    settings = Settings({"home": home, "engine.sweep_s": 0.05, **({} if what == "release" else LOOSE)})
    async with embedded(settings) as here, asyncio.timeout(60):
        await here.free_dead()
        here.start_duties()
        await here.start_worker(on_its_own=True)
        if what == "start":
            started = await here.api.execute(ExecuteRequest(playbook=argument))
            sys.stdout.write(started.execution_id + "\n")
            sys.stdout.flush()
            await here.api.ended(started.execution_id)
        elif what == "serve":
            healthy = await here.api.execute(ExecuteRequest(playbook=HEALTHY))
            await here.api.ended(healthy.execution_id)
            if argument == "wait":
                await asyncio.sleep(30)
            why = await here.api.why(os.environ["RUN"])
            state = (await here.api.summary(healthy.execution_id)).state
            sys.stdout.write(json.dumps({"healthy": state, "why": str(why)}))
        else:
            answer = await here.api.signal(os.environ["RUN"], SignalRequest("RESUME"))
            await here.api.ended(os.environ["RUN"])
            summary = await here.api.summary(os.environ["RUN"])
            sys.stdout.write(json.dumps({"state": summary.state, "error": str(summary.error), "answer": str(answer)}))


if __name__ == "__main__":
    threading.Thread(target=watch, args=(300 * MIB,), daemon=True).start()
    asyncio.run(main(*sys.argv[1:4]))
