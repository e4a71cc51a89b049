"""Two servers that take events, and the client that sends them.

serve arclog HOME   a control plane with one run that waits; prints its port and the run's id, ends when its input does
serve bare          a FastAPI application that decodes the same body and answers with the same bytes, stored nowhere
send PORT ID N M B  N events by M connections, B in a batch (0: singly); prints what that took as JSON
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

WAITS = "metadata: {name: waits}\nworkflow:\n  - step: start\n    tool: {kind: wait, signal: go}\n"
PAYLOAD = {"rows": 120, "outcome": {"status": "ok", "result": {"table": "orders", "day": "2026-06-04"}}}


async def serve_arclog(home: str) -> None:
    from arclog.model.config.settings import Settings
    from arclog.ports.views.api import ExecuteRequest
    from arclog.wiring.embedded import embedded
    from arclog.wiring.serving.server import serve

    settings = Settings({"home": home, "server.port": 0})
    async with embedded(settings) as embedding:
        run = await embedding.api.execute(ExecuteRequest(WAITS))
    loop = asyncio.get_running_loop()
    started, stop = loop.create_future(), asyncio.Event()
    server = asyncio.ensure_future(serve(settings, with_worker=False, started=started, stop=stop))
    await asyncio.wait((server, started), return_when=asyncio.FIRST_COMPLETED)
    print(started.result().rpartition(":")[2], run.execution_id, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    stop.set()
    await server


async def serve_bare() -> None:
    import socket

    import msgspec
    import uvicorn
    from fastapi import FastAPI, Request
    from starlette.responses import Response

    async def post(request: Any) -> Response:
        body = msgspec.json.decode(await request.body())
        answer = {
            "execution_id": body["execution_id"],
            "event_id": body["event_id"],
            "event_type": "task.done",
            "seq": 1,
        }
        return Response(msgspec.json.encode(answer), media_type="application/json")

    app = FastAPI()
    post.__annotations__["request"] = Request  # a name that only this function has
    app.post("/api/events", response_model=None)(post)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        print(listener.getsockname()[1], 1, flush=True)
        task = asyncio.ensure_future(server.serve([listener]))
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        server.should_exit = True
        await task


async def send(port: int, execution_id: str, count: int, connections: int, batch: int) -> dict[str, Any]:
    """A client as small as can be, so that the server is what is measured."""
    base = time.time_ns() // 1000
    events = [
        {"execution_id": execution_id, "event_id": str(base + n), "event_type": "call.done", "step": "start", "payload": PAYLOAD}
        for n in range(count)
    ]  # fmt: skip
    if batch:
        bodies = [json.dumps({"events": events[at : at + batch]}).encode() for at in range(0, count, batch)]
    else:
        bodies = [json.dumps(event).encode() for event in events]
    path = b"/api/events/batch" if batch else b"/api/events"
    head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    requests = [head % (path, len(body), body) for body in bodies]
    good = 0

    async def one() -> None:
        nonlocal good
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        while requests:
            writer.write(requests.pop())
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(length)
            if b" 200 " in answer[:20]:
                good += json.loads(body)["accepted"] if batch else 1
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    return {"send_s": time.perf_counter() - began, "good": good}


def main(args: list[str]) -> None:
    from arclog.wiring.process import run

    match args:
        case ["serve", "arclog", home]:
            run(serve_arclog(home))
        case ["serve", "bare"]:
            run(serve_bare())  # on the same loop
        case ["send", port, execution_id, *numbers]:
            print(json.dumps(asyncio.run(send(int(port), execution_id, *map(int, numbers)))))


if __name__ == "__main__":
    main(sys.argv[1:])
