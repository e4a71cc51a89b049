"""`ports.results` for workers on other machines: content streams both ways, and neither side holds more than a piece of it.

What arrives is checked against the hash that its sender names before it is kept. What breaks off while it is sent ends the
connection, so that nobody takes a part for the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from arclog.model.errors import RequestRejected, ResultTooLarge
from arclog.model.ids import MAX_ID, MICROS
from arclog.ports import work
from arclog.ports.results import Content, Results, ResultWriter, StoredBlob
from arclog.server.auth.access import ADMIN, WORK, allows, principal_of, services_of
from arclog.server.bodies import answered, pieces
from arclog.server.headers import OCTETS, media_type
from arclog.server.openapi import work_examples as examples
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix=f"{work.ROOT}/results", tags=["workers"])

_NDJSON = "application/x-ndjson"
_BYTES = {"type": "string", "format": "binary"}
#: Items are read so many at a time, until the answer is this large.
_ITEMS_AT_A_TIME = 256
_PAGE_BYTES = 4 << 20
#: Lines of a list are handed on when so many bytes have come.
_PIECE_BYTES = 1 << 20
#: Content is named by its hash, and by nothing that could be taken for a path.
Sha256 = Annotated[str, Query(pattern="^[0-9a-f]{64}$")]
Position = Annotated[int, Query(ge=0, le=MAX_ID)]
#: What was begun so long ago is not being written any more.
_ABANDONED = 3600 * MICROS
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


@router.post(
    "",
    dependencies=[allows(WORK)],
    **documented(
        takes=_BYTES,
        takes_example="test",
        takes_media=OCTETS,
        answer=Content,
        example=examples.CONTENT,
        errors=(404, 413),
    ),
)
async def upload(
    request: Request, tenant: str, sha256: Sha256, listed: bool = False, content_type: str = "application/json"
) -> Response:
    """Store the body. The body of a list has one JSON value per line."""
    writer = _results(request).writer(tenant, listed=listed, content_type=media_type(content_type))
    arrived = hashlib.sha256()
    try:
        if listed:
            await _take_lines(request, writer, arrived)
        else:
            async for chunk in pieces(request):
                arrived.update(chunk)
                await writer.write(chunk)
        if arrived.hexdigest() != sha256:
            raise RequestRejected("the content does not match its sha256 and was not stored; send it again")
        return answered(await writer.commit())
    except ClientDisconnect:  # nobody hears the answer, and it is not a bug of ours
        raise HTTPException(400, "the connection ended within the body") from None
    finally:
        await writer.abandon()


@router.get("", dependencies=[allows(WORK)], **documented(answer=_BYTES, example="test", media=OCTETS))
async def download(
    request: Request, tenant: str, sha256: Sha256, start: Position = 0, end: Position | None = None
) -> Response:
    """Get the bytes [start, end) of stored content."""
    chunks = _results(request).chunks(tenant, sha256, start, end)
    # What is missing is known with the first piece, while it can still be said.
    first = await anext(chunks, b"")
    return StreamingResponse(_all_of(first, chunks), media_type=OCTETS)


@router.get("/items", dependencies=[allows(WORK)], **documented(answer=work.Items, example=work.Items([1, 2])))
async def items(request: Request, tenant: str, sha256: Sha256, first: Position, last: Position) -> Response:
    """List the items from `first` up to, but not including, `last`, as many as fit into one response."""
    results = _results(request)
    found: list[Any] = []
    size = 0
    while True:
        wanted = min(_ITEMS_AT_A_TIME, last - first)
        some = await results.items(tenant, sha256, first, first + wanted)
        found += some
        first += len(some)
        size += len(msgspec.json.encode(some))
        if len(some) < wanted or first >= last:
            return answered(work.Items(found))
        if size >= _PAGE_BYTES:
            return answered(work.Items(found, more=True))


@router.get("/about", dependencies=[allows(WORK)], **documented(answer=StoredBlob | None, example=examples.BLOB))
async def about(request: Request, tenant: str, sha256: Sha256) -> Response:
    """Describe stored content; null if there is none."""
    return answered(await _results(request).find(tenant, sha256))


@router.delete(
    "", dependencies=[allows(ADMIN, tenant_wide=True)], **documented(answer=work.Removed, example=work.Removed(1))
)
async def remove(request: Request, tenant: str, sha256: Sha256, stored_at: Position | None = None) -> Response:
    """Remove content; with `stored_at`, only if it was not stored again since."""
    return answered(work.Removed(int(await _results(request).remove(tenant, sha256, stored_at))))


@router.get(
    "/all",
    dependencies=[allows(ADMIN, tenant_wide=True)],
    **documented(answer=StoredBlob, media=_NDJSON, example=examples.BLOB),
)
async def everything(request: Request) -> Response:
    """List all stored content, one JSON value per line."""
    blobs = _results(request).all()

    async def lines() -> AsyncIterator[bytes]:
        async for blob in blobs:
            yield msgspec.json.encode(blob) + b"\n"

    return StreamingResponse(lines(), media_type=_NDJSON)


@router.delete(
    "/leftovers",
    dependencies=[allows(ADMIN, tenant_wide=True)],
    **documented(answer=work.Removed, example=work.Removed(0)),
)
async def leftovers(request: Request, older_than: Position) -> Response:
    """Remove what writers that are gone left behind before that moment (microseconds since 1970), an hour ago at the latest:
    what others are writing now is not touched.
    """
    latest = services_of(request).clock.now() - _ABANDONED
    return answered(work.Removed(await _results(request).leftovers(min(older_than, latest))))


async def _take_lines(request: Request, writer: ResultWriter, arrived: Any) -> None:
    most = services_of(request).settings.integer("server.max_report_bytes")
    held = bytearray()
    async for chunk in pieces(request):
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


async def _all_of(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for chunk in rest:
        yield chunk


def _results(request: Request) -> Results:
    return services_of(request).workplace(principal_of(request)).results
