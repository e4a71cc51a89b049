"""The form of results in a NATS bucket: that of the object store (ADR-20), so that `nats object get` returns the stored
file.

An object `<tenant>/<sha256>.zst` is a message that describes it, and its chunks as messages under their own subject. A
chunk never crosses parts, and a table of the chunks' sequence numbers follows the parts, in a frame that zstd skips. So
any part can be read alone.

    frame … frame │ magic size │ place … place │ sha256 │ index
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from arclog.results.parts import Damaged, Index, folder_of, is_sha256, read_index, tenant_of

#: the chunk size of the object store's own clients
CHUNK_BYTES = 128 * 1024
_SKIPPABLE = 0x184D2A5D
_HEAD = struct.Struct("<II")
_DIGEST = 32
_SUFFIX = ".zst"


class ObjectInfo(msgspec.Struct, omit_defaults=True):
    """The message that describes an object. The names are those of NATS' ADR-20."""

    name: str
    bucket: str
    nuid: str
    size: int = 0
    mtime: str = ""
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    #: chunk: largest chunk; tail: sequence numbers of the last chunks; table, index: their sizes in bytes
    metadata: dict[str, str] = {}
    options: dict[str, Any] = {}


class PlacedIndex(Index, frozen=True):
    """An index that also has the sequence numbers of the chunks."""

    #: sequence number of every chunk of every part
    places: list[int]
    #: number of the first chunk of each part, and the total number
    chunk_of: list[int]


class Subjects:
    """The subjects of a bucket."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.stream = f"OBJ_{bucket}"
        self.all_info = f"$O.{bucket}.M.>"
        self.all_chunks = f"$O.{bucket}.C.>"

    def info(self, tenant: str, sha256: str) -> str:
        return f"$O.{self.bucket}.M.{base64.urlsafe_b64encode(object_name(tenant, sha256).encode()).decode()}"

    def chunks(self, nuid: str) -> str:
        return f"$O.{self.bucket}.C.{nuid}"


def object_name(tenant: str, sha256: str) -> str:
    return f"{folder_of(tenant)}/{sha256}{_SUFFIX}"


def content_of(name: str) -> tuple[str, str] | None:
    """Return tenant and sha256 of an object; None if it is not a result."""
    folder, _, file = name.partition("/")
    tenant, sha256 = tenant_of(folder), file.removesuffix(_SUFFIX)
    return (tenant, sha256) if tenant is not None and is_sha256(sha256) and file.endswith(_SUFFIX) else None


def cut(frame: bytes, size: int) -> list[bytes]:
    return [frame[at : at + size] for at in range(0, len(frame), size)]


def table_of(places: Sequence[int]) -> bytes:
    """Return the table of sequence numbers, as a skippable frame."""
    body = struct.pack(f"<{len(places)}Q", *places)
    body += hashlib.sha256(body).digest()
    return _HEAD.pack(_SKIPPABLE, len(body)) + body


def read_tail(tail: bytes, info: ObjectInfo) -> PlacedIndex:
    """Parse table and index. Raises Damaged if they are inconsistent."""
    try:
        chunk, table_bytes = int(info.metadata["chunk"]), int(info.metadata["table"])
    except (KeyError, ValueError):
        raise Damaged("it was not stored by arclog") from None
    table, end = tail[:table_bytes], tail[table_bytes:]
    if len(table) != table_bytes or table_bytes < _HEAD.size + _DIGEST or str(len(end)) != info.metadata.get("index"):
        raise Damaged("it is cut")
    magic, size = _HEAD.unpack_from(table)
    body, digest = table[_HEAD.size : -_DIGEST], table[-_DIGEST:]
    if magic != _SKIPPABLE or size != len(table) - _HEAD.size or hashlib.sha256(body).digest() != digest:
        raise Damaged("its table of chunks was changed")
    places = list(struct.unpack(f"<{len(body) // 8}Q", body))
    index = read_index(end, info.size - len(table))
    chunk_of = [0]
    for part in index.parts:
        chunk_of.append(chunk_of[-1] + -(-part.packed // chunk))
    if chunk_of[-1] != len(places):
        raise Damaged("its table of chunks does not add up")
    return PlacedIndex(
        index.sha256, index.bytes, index.rows, index.parts, index.starts, index.firsts, places=places, chunk_of=chunk_of
    )


def info_of(
    subjects: Subjects, tenant: str, sha256: str, nuid: str, size: int, digest: bytes, chunk: int,
    places: Sequence[int], tail: Sequence[int], table_bytes: int, index_bytes: int,
) -> ObjectInfo:  # fmt: skip
    """Return the message of a complete object."""
    return ObjectInfo(
        name=object_name(tenant, sha256),
        bucket=subjects.bucket,
        nuid=nuid,
        size=size,
        mtime=now(),
        chunks=len(places) + len(tail),
        digest=f"SHA-256={base64.urlsafe_b64encode(digest).decode()}",
        metadata={
            "chunk": str(chunk),
            "tail": " ".join(map(str, tail)),
            "table": str(table_bytes),
            "index": str(index_bytes),
        },
        options={"max_chunk_size": chunk},
    )


def now() -> str:
    """Return the storage time for a message."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
