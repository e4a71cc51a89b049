"""Stores many bytes of JSON-like data, as arclog does or with zstd alone. The data is made before the clock starts.

arclog|zstd|rows MIB FOLDER
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

MIB = 1 << 20
#: made once and used again and again: far more than zstd looks back
POOL_MIB = 32
LEVEL = 3


def rows(seed: int) -> Iterator[dict[str, Any]]:
    """Orders, as an API would list them."""
    chance = random.Random(seed)
    towns = ["Zürich", "Kyoto", "São Paulo", "Nairobi", "Oslo"]
    number = 0
    while True:
        number += 1
        yield {
            "id": number,
            "customer": f"{chance.getrandbits(64):016x}",
            "town": chance.choice(towns),
            "amount": round(chance.lognormvariate(3, 1), 2),
            "created_at": f"2026-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}T{chance.randrange(24):02}:00:00Z",
            "lines": [
                {"sku": chance.randrange(10_000), "count": chance.randrange(1, 9)} for _ in range(chance.randrange(4))
            ],
        }


def pool() -> list[bytes]:
    """Pieces of 1 MiB."""
    held = bytearray()
    for row in rows(1):
        held += json.dumps(row, ensure_ascii=False).encode() + b"\n"
        if len(held) >= POOL_MIB * MIB:
            break
    return [bytes(held[at : at + MIB]) for at in range(0, POOL_MIB * MIB, MIB)]


async def by_arclog(pieces: list[bytes], count: int, folder: str) -> dict[str, Any]:
    from arclog.results.blobs.files import FileBlobs
    from arclog.results.store import BlobResults

    results = BlobResults(FileBlobs(os.path.join(folder, "results")))
    started, cpu = time.perf_counter(), time.process_time()
    writer = results.writer("default")
    for number in range(count):
        await writer.write(pieces[number % len(pieces)])
    done = await writer.commit()
    took, busy = time.perf_counter() - started, time.process_time() - cpu
    started = time.perf_counter()
    size = 0
    async for chunk in results.chunks("default", done.sha256):
        size += len(chunk)
    read_s = time.perf_counter() - started
    await results.close()
    return {
        "store_s": took,
        "cpu_s": busy,
        "read_s": read_s,
        "bytes": size,
        "sha256": done.sha256,
        "stored": done.stored_bytes,
    }


async def by_rows(count: int, folder: str) -> dict[str, Any]:
    """The same as a list, item by item; encoding them is part of the work."""
    from arclog.results.blobs.files import FileBlobs
    from arclog.results.store import BlobResults

    held = [row for row, _ in zip(rows(1), range(50_000), strict=False)]
    results = BlobResults(FileBlobs(os.path.join(folder, "results")))
    size = len(json.dumps(held, ensure_ascii=False).encode())
    started = time.perf_counter()
    writer = results.writer("default", listed=True)
    for _ in range(max(1, count * MIB // size)):
        for at in range(0, len(held), 1000):
            await writer.add(held[at : at + 1000])
    done = await writer.commit()
    took = time.perf_counter() - started
    last = await results.items("default", done.sha256, (done.rows or 0) - 1, 1 << 60)
    await results.close()
    return {"store_s": took, "bytes": done.bytes, "last": last == held[-1:]}


def by_zstd(pieces: list[bytes], count: int, folder: str) -> dict[str, Any]:
    import zstandard

    started = time.perf_counter()
    with open(os.path.join(folder, "plain.zst"), "wb") as file:
        with zstandard.ZstdCompressor(level=LEVEL).stream_writer(file, closefd=False) as writer:
            for number in range(count):
                writer.write(pieces[number % len(pieces)])
        file.flush()
        os.fsync(file.fileno())
        stored = file.tell()
    return {"store_s": time.perf_counter() - started, "stored": stored}


def main(way: str, count: int, folder: str) -> dict[str, Any]:
    if way == "rows":
        return asyncio.run(by_rows(count, folder))
    pieces = pool()
    if way == "zstd":
        return by_zstd(pieces, count, folder)
    whole = hashlib.sha256()
    for number in range(count):
        whole.update(pieces[number % len(pieces)])
    return {**asyncio.run(by_arclog(pieces, count, folder)), "wanted": whole.hexdigest()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
