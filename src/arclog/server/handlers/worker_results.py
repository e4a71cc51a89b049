"""Handlers of the results in `operations.workers`: content streams both ways, and neither side holds more than a piece of it.

What arrives is checked against the hash that its sender names before it is kept. What breaks off while it is sent ends the
connection, so that nobody takes a part for the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from arclog.model.errors import RequestRejected, ResultTooLarge
from arclog.model.ids import MICROS
from arclog.operations import workers as ops
from arclog.operations.operation import NDJSON, OCTETS
from arclog.ports import work
from arclog.ports.results import Content, ResultWriter, StoredBlob
from arclog.server.call import Call
from arclog.server.dispatch import handles
from arclog.server.handlers.results import joined
from arclog.server.headers import media_type

#: Items are read so many at a time, until the answer is this large.
_ITEMS_AT_A_TIME = 256
_PAGE_BYTES = 4 << 20
#: Lines of a list are handed on when so many bytes have come.
_PIECE_BYTES = 1 << 20
#: What was begun so long ago is not being written any more.
_ABANDONED = 3600 * MICROS
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


@handles(ops.UPLOAD)
async def upload(call: Call, asked: ops.UploadContent) -> Content:
    writer = call.workspace.results.writer(
        asked.tenant, listed=asked.listed, content_type=media_type(asked.content_type)
    )
    arrived = hashlib.sha256()
    try:
        if asked.listed:
            await _take_lines(call, writer, arrived)
        else:
            async for chunk in call.pieces():
                arrived.update(chunk)
                await writer.write(chunk)
        if arrived.hexdigest() != asked.sha256:
            raise RequestRejected("the content does not match its sha256 and was not stored; send it again")
        return await writer.commit()
    finally:
        await writer.abandon()


@handles(ops.DOWNLOAD)
async def download(call: Call, asked: ops.DownloadContent) -> Response:
    chunks = call.workspace.results.chunks(asked.tenant, asked.sha256, asked.start, asked.end)
    # What is missing is known with the first piece, while it can still be said.
    first = await anext(chunks, b"")
    return StreamingResponse(joined(first, chunks), media_type=OCTETS)


@handles(ops.ITEMS)
async def items(call: Call, asked: ops.ItemsOf) -> work.Items:
    results = call.workspace.results
    first, last = asked.first, asked.last
    found: list[Any] = []
    size = 0
    while True:
        wanted = min(_ITEMS_AT_A_TIME, last - first)
        some = await results.items(asked.tenant, asked.sha256, first, first + wanted)
        found += some
        first += len(some)
        size += len(msgspec.json.encode(some))
        if len(some) < wanted or first >= last:
            return work.Items(found)
        if size >= _PAGE_BYTES:
            return work.Items(found, more=True)


@handles(ops.ABOUT)
async def about(call: Call, asked: ops.OfContent) -> StoredBlob | None:
    return await call.workspace.results.find(asked.tenant, asked.sha256)


@handles(ops.REMOVE)
async def remove(call: Call, asked: ops.RemoveContent) -> work.Removed:
    results = call.workspace.results
    return work.Removed(int(await results.remove(asked.tenant, asked.sha256, asked.stored_at)))


@handles(ops.EVERYTHING)
async def everything(call: Call) -> Response:
    blobs = call.workspace.results.all()

    async def lines() -> AsyncIterator[bytes]:
        async for blob in blobs:
            yield msgspec.json.encode(blob) + b"\n"

    return StreamingResponse(lines(), media_type=NDJSON)


@handles(ops.LEFTOVERS)
async def leftovers(call: Call, asked: ops.OlderThan) -> work.Removed:
    latest = call.services.clock.now() - _ABANDONED
    return work.Removed(await call.workspace.results.leftovers(min(asked.older_than, latest)))


async def _take_lines(call: Call, writer: ResultWriter, arrived: Any) -> None:
    most = call.services.settings.integer("server.max_report_bytes")
    held = bytearray()
    async for chunk in call.pieces():
        arrived.update(chunk)
        held += chunk
        if len(held) >= _PIECE_BYTES and (end := held.rfind(b"\n") + 1):
            await writer.add(_decoded(held[:end]))
            del held[:end]
        elif len(held) > most:
            raise ResultTooLarge(f"an item of the list takes more than {most} bytes (ARCLOG_SERVER_MAX_REPORT_BYTES)")
    if held:
        await writer.add(_decoded(held))


def _decoded(lines: bytearray) -> list[Any]:
    try:
        return _DECODER.decode_lines(bytes(lines))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RequestRejected(f"a line of the list is not JSON: {problem}") from None
