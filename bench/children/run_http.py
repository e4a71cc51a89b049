"""The other side of http tasks, and the bare client beside them.

serve               answers every request with a small JSON body; prints its port, ends when its standard input does
bare URL N M        N GETs by one httpx2 client, M at a time; prints what they took as JSON
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

BODY = b'{"ok":true,"items":[1,2,3]}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


class Server(asyncio.Protocol):
    """As little as can be: what is measured is the client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\r\n\r\n")
        self._transport.write(ANSWER * len(whole))


async def serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


async def bare(url: str, count: int, at_a_time: int) -> dict[str, Any]:
    import httpx2

    limits = httpx2.Limits(max_connections=at_a_time, max_keepalive_connections=at_a_time)
    numbers = iter(range(count))
    good = 0

    async def lane(client: httpx2.AsyncClient) -> None:
        nonlocal good
        for number in numbers:
            answer = await client.get(url, params={"n": number})
            good += answer.json() == json.loads(BODY)

    async with httpx2.AsyncClient(http2=True, limits=limits) as client:
        started, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(lane(client) for _ in range(at_a_time)))
        return {"run_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu, "good": good}


def main(argv: list[str]) -> None:
    match argv:
        case ["serve"]:
            asyncio.run(serve())
        case ["bare", url, count, at_a_time]:
            print(json.dumps(asyncio.run(bare(url, int(count), int(at_a_time)))))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
