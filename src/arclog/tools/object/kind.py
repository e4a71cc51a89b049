"""Kind `object`: put, get, list, head and delete by URL.

The result is `{url, …, data}`. `data` is the content (get), the rows (list), or the metadata of the object. A put is
atomic; delete and put may be repeated.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from arclog.model.config.extras import required
from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.model.data.shapes import Field
from arclog.model.errors import ResultUnavailable
from arclog.model.outcome import Outcome, failed, result_error
from arclog.model.refs import LIST, ResultRef
from arclog.ports.results import Content, ResultSink
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.sandbox.confinement_settings import reach_of
from arclog.tools.listing import Rows
from arclog.tools.object.location import (
    FILE,
    Location,
    ObjectMeta,
    OpenedObject,
    Pieces,
    Place,
    Range,
    Refused,
    check_endpoint,
    check_key,
    locate,
    refuse,
)

if TYPE_CHECKING:
    from arclog.drivers.http.forward import Forwarder
    from arclog.drivers.http.guard import Guard
    from arclog.tools.object.cloud import Access, Opened

# ── content ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Content of objects: encodes the content of a `put`, and decodes the bytes of a `get`.
#
# Small text and JSON become plain data. Large or binary content goes to the result store, piece by piece.


JSON = "application/json"
NDJSON = "application/x-ndjson"
TEXT = "text/plain; charset=utf-8"
BINARY = "application/octet-stream"


class Read(Struct):
    """The result of reading an object: plain data, or content in the result store."""

    data: Any = None
    stored: Content | None = None


class Outgoing:
    """The content of a put, hashed while it is sent."""

    def __init__(self, content: Any, encoding: str, results: ResultSink) -> None:
        self._hash = hashlib.sha256()
        self.size: int | None
        if isinstance(content, ResultRef):
            self.content_type = NDJSON if content.kind == LIST else content.meta.content_type
            self.size = content.meta.bytes
            self._source = results.read(content)
        else:
            body, self.content_type = _encoded(content, encoding)
            self.size = len(body)
            self._source = _once(body)

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._source:
            self._hash.update(piece)
            yield piece

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def _encoded(content: Any, encoding: str) -> tuple[bytes, str]:
    if encoding == "base64":
        if not isinstance(content, str):
            raise refuse("config", f"content must be a base64 text (encoding: base64), not {type(content).__name__}")
        try:
            return base64.b64decode(content, validate=True), BINARY
        except (binascii.Error, ValueError) as problem:
            raise refuse("config", f"content is not base64: {problem}") from problem
    try:
        if isinstance(content, str):
            return content.encode(), TEXT
        return msgspec.json.encode(content), JSON
    except UnicodeEncodeError as problem:
        raise refuse("config", f"content contains a lone surrogate at {problem.start}") from problem


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def read(pieces: Pieces, size: int, content_type: str | None, decode: str, results: ResultSink, url: str) -> Read:
    """Decode the bytes as data, or store them if they are large or not text."""
    how = _how(content_type) if decode == "auto" else decode
    if how == "bytes" or size > results.inline_max_bytes:
        if how == "json":
            content_type = JSON
        elif how == "text" and not (content_type or "").startswith("text/"):
            content_type = TEXT
        return Read(stored=await _stored(pieces, content_type or BINARY, results))
    body = b"".join([piece async for piece in pieces])
    if how == "json":
        try:
            return Read(msgspec.json.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise refuse(
                "exception", f"{url}: is not one JSON document: {problem}; decode: text returns it unchanged", "NotJSON"
            ) from problem
    try:
        return Read(body.decode())
    except UnicodeDecodeError as problem:
        if how == "text":
            raise refuse(
                "exception",
                f"{url}: is not UTF-8 text at byte {problem.start}; decode: bytes returns it unchanged",
                "NotText",
            ) from problem
        return Read(stored=await _stored(_once(body), content_type or BINARY, results))


def _how(content_type: str | None) -> str:
    """Return how content of this type is read: as json, text, bytes, or by a guess (text if it is valid)."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind == JSON or kind.endswith("+json"):
        return "json"
    if kind.startswith("text/") or kind in (NDJSON, "application/xml", "application/yaml"):
        return "text"
    return "guess" if kind in ("", BINARY, "binary/octet-stream") else "bytes"


async def _stored(pieces: Pieces, content_type: str, results: ResultSink) -> Content:
    writer = results.writer(content_type=content_type)
    try:
        async for piece in pieces:
            await writer.write(piece)
        return await writer.commit()
    finally:
        await writer.abandon()


# ── kind ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


_KEPT_STORES = 64
#: Stores with the same access: a task does not share one whose server its playbook names.
_KEPT_OF_ONE = 8
#: Keys that only some actions have.
_ONLY = {
    "content": ("put",),
    "content_type": ("put", "get"),
    "encoding": ("put",),
    "if_absent": ("put",),
    "decode": ("get",),
    "range": ("get",),
    "recursive": ("list",),
    "max_keys": ("list",),
    "keys": ("delete",),
}


class ObjectConfig(Struct, frozen=True):
    """An object task."""

    action: Literal["put", "get", "list", "head", "delete"]
    url: str
    content: Any = UNSET
    content_type: str | UnsetType = UNSET
    encoding: Literal["text", "base64"] | UnsetType = UNSET
    if_absent: bool | UnsetType = UNSET
    decode: Literal["auto", "json", "text", "bytes"] | UnsetType = UNSET
    range: dict[str, int] | UnsetType = UNSET
    recursive: bool | UnsetType = UNSET
    max_keys: int | UnsetType = UNSET
    keys: list[str] | UnsetType = UNSET
    endpoint: str = ""
    region: str = ""
    allow_http: bool = False


class ObjectTool:
    """Runs object tasks."""

    Config: type[Struct] = ObjectConfig

    def __init__(self, settings: Settings, scratch: Path) -> None:
        self._reach = reach_of(settings, scratch)
        self._max_keys = settings.integer("object.max_keys")
        self._create_max_bytes = settings.integer("object.if_absent_max_bytes")
        self._ambient = settings["object.ambient_credentials"]
        self._connect_timeout_s = settings.number("object.connect_timeout_s")
        self._read_timeout_s = settings.number("object.read_timeout_s")
        self._retries = settings.integer("object.request_retries")
        self._settings = settings
        #: stores keep their connections; oldest first. Those that no task uses, or that tasks share
        self._stores: dict[Access, list[Opened]] = {}
        self._forwarder: Forwarder | None = None
        #: whether metadata services may be accessed → guard
        self._guards: dict[bool, Guard] = {}

    async def run(self, config: ObjectConfig, context: TaskContext) -> Outcome:
        used: list[tuple[Access, Opened]] = []
        try:
            _check(config)
            at = locate(config.url, prefix=config.action == "list" or config.keys is not UNSET)
            place = await self._place(at, config, context, used)
            if config.action == "put":
                return await self._put(place, at, config, context)
            if config.action == "get":
                return await self._get(place, at, config, context)
            if config.action == "list":
                return await self._list(place, at, config, context)
            if config.action == "head":
                return _ok(at, {"data": _fields_of(await place.head(at.key))})
            return await _delete(place, at, config)
        except Refused as refused:
            return failed(refused.problem)
        except ResultUnavailable as problem:
            return failed(result_error(problem))
        finally:
            for access, opened in used:
                self._keep(access, opened)

    async def execution_ended(self, execution_id: str) -> None:
        """Nothing to release for a run."""

    async def close(self) -> None:
        self._stores.clear()
        if self._forwarder is not None:
            await asyncio.to_thread(self._forwarder.close)
            self._forwarder = None

    async def _place(
        self, at: Location, config: ObjectConfig, context: TaskContext, used: list[tuple[Access, Opened]]
    ) -> Place:
        """Return the place of an object. A store that only this task uses is added to `used`."""
        if at.scheme == FILE:
            from arclog.tools.object.folder import local_files

            return local_files(at.key, self._settings, self._reach)
        with required("object", f"{at.scheme}://"):
            import obstore  # noqa: F401 - asks whether the extra is there
        from arclog.tools.object.cloud import Access, Cloud, fields_for

        credential = fields_for(at.scheme, context.auth)
        endpoint = config.endpoint or credential.get("endpoint", "")
        access = Access(
            scheme=at.scheme,
            bucket=at.bucket,
            endpoint=endpoint,
            region=config.region,
            allow_http=config.allow_http,
            credential=tuple(sorted(credential.items())),
            ambient=self._ambient,
            connect_timeout_s=self._connect_timeout_s,
            read_timeout_s=self._read_timeout_s,
            # After a lost response, a retry would find the object that the first attempt created.
            retries=0 if config.if_absent is True else self._retries,
        )
        signed = bool(credential) or access.is_ambient
        if at.scheme == "gs" and not signed and config.action in ("put", "delete"):
            # The library cannot send these requests unsigned.
            raise refuse("auth", f"{at.url}: changing it requires `auth`", "UNSIGNED")
        opened = await self._opened(access)
        if access.is_named:
            used.append((access, opened))
        return Cloud(opened, at, self._create_max_bytes, signed=signed)

    async def _opened(self, access: Access) -> Opened:
        """Return the store of an access. Its endpoint is checked each time, since the address of a name may change."""
        from arclog.drivers.http.client import uses_proxies
        from arclog.drivers.http.forward import Forwarder
        from arclog.drivers.http.guard import METADATA_SERVICES, guard_of
        from arclog.tools.object.cloud import open_store

        proxied = uses_proxies(self._settings)
        guard = self._guards.get(access.is_ambient)
        if guard is None:
            metadata = METADATA_SERVICES if access.is_ambient else ()
            guard = guard_of(self._settings, "object.allow_networks", "object tasks", *metadata)
            self._guards[access.is_ambient] = guard
        if access.endpoint:
            await check_endpoint(access.endpoint, guard, allow_http=access.allow_http, proxied=proxied)
        if self._forwarder is None:
            self._forwarder = Forwarder()
        kept = self._stores.pop(access, [])
        opened = kept.pop() if kept else open_store(access, self._forwarder, None if proxied else guard)
        if kept:
            self._stores[access] = kept
        if not access.is_named:
            self._keep(access, opened)
        elif opened.route is not None:
            opened.route.begin()
        return opened

    def _keep(self, access: Access, opened: Opened) -> None:
        """Keep a store for other tasks."""
        if self._forwarder is None:
            return  # closed meanwhile
        kept = self._stores.pop(access, [])
        self._stores[access] = [*kept, opened][-_KEPT_OF_ONE:]
        if len(self._stores) > _KEPT_STORES:
            self._stores.pop(next(iter(self._stores)))

    async def _put(self, place: Place, at: Location, config: ObjectConfig, context: TaskContext) -> Outcome:

        encoding = "text" if config.encoding is UNSET else config.encoding
        outgoing = Outgoing(config.content, encoding, context.results)
        kind = outgoing.content_type if config.content_type is UNSET else config.content_type
        pieces = _watched(outgoing.pieces(), context, outgoing.size)
        meta = await place.put(at.key, pieces, kind, if_absent=config.if_absent is True)
        where = {"url": at.url, "store": at.store, "key": at.key}
        return _ok(at, {"data": {**where, **_fields_of(meta), "content_type": kind, "sha256": outgoing.sha256}})

    async def _get(self, place: Place, at: Location, config: ObjectConfig, context: TaskContext) -> Outcome:

        part = None if config.range is UNSET else _range(config.range)
        content: OpenedObject = await place.get(at.key, part)
        kind = content.meta.content_type if config.content_type is UNSET else config.content_type
        decode = "auto" if config.decode is UNSET else config.decode
        length = content.end - content.start
        pieces = _watched(content.pieces, context, length)
        made = await read(pieces, length, kind, decode, context.results, at.url)
        result = _fields_of(content.meta)
        if part is not None:
            result["range"] = {"start": content.start, "end": content.end}
        if made.stored is not None:
            return Outcome(result={"url": at.url, **result}, data_at="data", stored=made.stored)
        return _ok(at, {**result, "data": made.data})

    async def _list(self, place: Place, at: Location, config: ObjectConfig, context: TaskContext) -> Outcome:
        limit = self._max_keys if config.max_keys is UNSET else min(config.max_keys, self._max_keys)
        rows = Rows(context, "objects")
        folders: list[str] = []
        try:
            async for chunk, some in place.listing(at.key, recursive=config.recursive is not False):
                folders += some
                if rows.count + len(chunk) + len(folders) > limit:
                    name = "object.max_keys" if limit == self._max_keys else "max_keys"
                    raise refuse(
                        "limit", f"{at.url}: holds more than {limit} objects ({name}); list a longer prefix", name
                    )
                await rows.add([_row(at, meta) for meta in chunk])
            return await rows.outcome({"url": at.url, "folders": folders} if folders else {"url": at.url})
        finally:
            await rows.close()


async def _delete(place: Place, at: Location, config: ObjectConfig) -> Outcome:
    if config.keys is UNSET:
        keys = [at.key]
    else:
        for key in config.keys:
            check_key(key, key)
        keys = [at.below(key.lstrip("/")).key for key in config.keys]
    if keys:
        await place.delete(keys)
    return _ok(at, {"data": {"deleted": len(keys)}})


def _check(config: ObjectConfig) -> None:
    """Refuse keys that do not belong to the action, and missing ones."""
    for name, actions in _ONLY.items():
        if getattr(config, name) is not UNSET and config.action not in actions:
            raise refuse("config", f"{name} belongs to action {' or '.join(actions)}, not to {config.action}")
    if config.action == "put" and config.content is UNSET:
        raise refuse("config", "action put needs `content`: a text, a JSON value or a stored result")
    if isinstance(config.max_keys, int) and config.max_keys < 1:
        raise refuse("config", f"max_keys: {config.max_keys} is below 1")


def _range(limits: dict[str, int]) -> Range:
    names = set(limits)
    if not names or not (names <= {"start", "end"} or names == {"last"}):
        raise refuse(
            "config", f"range takes start and end (not included), or last; not {', '.join(sorted(names)) or 'nothing'}"
        )
    part = Range(**limits)
    if part.start < 0 or (part.last or 0) < 0 or (part.end is not None and part.end < part.start):
        raise refuse("config", f"range: {limits} is not a range of bytes")
    return part


def _fields_of(meta: ObjectMeta) -> dict[str, Any]:
    return {name: value for name, value in asdict(meta).items() if name != "key" and value is not None}


def _row(at: Location, meta: ObjectMeta) -> dict[str, Any]:
    return {
        "url": Location(at.scheme, at.bucket, meta.key).url,
        "path": meta.key,
        "size": meta.size,
        "etag": meta.etag,
        "last_modified": meta.last_modified,
    }


def _ok(at: Location, fields: dict[str, Any]) -> Outcome:
    return Outcome(result={"url": at.url, **fields}, data_at="data")


async def _watched(pieces: Pieces, context: TaskContext, total: int | None) -> Pieces:
    done = 0
    async for piece in pieces:
        done += len(piece)
        context.progress(done, total, "bytes")
        yield piece


def _open(services: ToolServices) -> ObjectTool:
    return ObjectTool(services.settings, services.scratch)


def _field(name: str, kind: str, doc: str, **more: Any) -> Field:
    return Field(name, kind, doc, template=True, **more)


KIND = ToolKind(
    KindSpec(
        name="object",
        opens_files=False,
        summary="Puts, gets, lists and deletes objects: files, S3, Google Cloud Storage, Azure.",
        auth=("secret", "secret_manager", "env", "file", "basic", "bearer", "oauth2"),
        fields=(
            _field(
                "action",
                "string",
                "put, get, list, head or delete.",
                required=True,
                choices=("put", "get", "list", "head", "delete"),
            ),
            _field(
                "url",
                "string",
                "s3://bucket/key, gs://…, az://container/key, file:///path or a path in `object.file_root`.",
                required=True,
            ),
            _field("content", "any", "put: a text, a value (becomes JSON), or a stored result, which is streamed."),
            _field("content_type", "string", "put: content type of the object. get: content type to assume."),
            _field(
                "encoding",
                "string",
                "put: `base64` if `content` is base64 text of binary data.",
                choices=("text", "base64"),
            ),
            _field(
                "if_absent", "boolean", "put: only if the object does not exist; otherwise an error of kind `conflict`."
            ),
            _field(
                "decode",
                "string",
                "get: auto (by content type), json, text, or bytes (always a stored result).",
                choices=("auto", "json", "text", "bytes"),
            ),
            _field(
                "range",
                "object",
                "get: the bytes from `start` up to, but not including, `end`, or the `last` bytes.",
                fields=(
                    _field("start", "integer", "Position of the first byte.", minimum=0),
                    _field("end", "integer", "Position after the last byte.", minimum=0),
                    _field("last", "integer", "Number of bytes from the end.", minimum=0),
                ),
            ),
            _field("recursive", "boolean", "list: whether to include the contents of subfolders.", default=True),
            _field(
                "max_keys",
                "integer",
                "list: maximum number of objects; more are an error. At most `object.max_keys`.",
                minimum=1,
            ),
            _field("keys", "list", "delete: several keys below `url`.", items=_field("key", "string", "A key.")),
            _field(
                "endpoint", "string", "Address of a server that is compatible with S3 (or with the cloud's own API)."
            ),
            _field("region", "string", "S3: region of the bucket. Default: `us-east-1`."),
            _field("allow_http", "boolean", "Whether the endpoint may be an http:// address.", default=False),
        ),
        data_at="data",
        by_ref=("content",),
    ),
    _open,
)
