"""Objects in S3, Google Cloud Storage and Azure, through obstore.

Large content is uploaded in parts, and a failed upload is aborted: its source raises, which makes obstore remove the
parts that it sent (cancelling its future would leave them in the bucket forever).
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import re
import weakref
from collections.abc import AsyncIterator, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from arclog.drivers.objects import client_config, report_of
from arclog.model.outcome import ERROR_KINDS, error
from arclog.ports.secrets import Credential
from arclog.tools.object.location import (
    PIECE,
    Location,
    ObjectMeta,
    OpenedObject,
    Pieces,
    Range,
    Refused,
    refuse,
    resolved,
)

if TYPE_CHECKING:
    from arclog.drivers.http.forward import Forwarder, Route
    from arclog.drivers.http.guard import Guard

log = logging.getLogger("arclog.tools.object")

# ── credentials ───────────────────────────────────────────────────────────────────────────────────────────────────────
# The credential of a task's `auth`, by the field names of each cloud.

#: field of the store → its possible names in a credential
_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "s3": {
        "access_key_id": ("access_key_id", "aws_access_key_id", "access_key", "username"),
        "secret_access_key": ("secret_access_key", "aws_secret_access_key", "secret_key", "password"),
        "session_token": ("session_token", "aws_session_token"),
        "region": ("region",),
        "endpoint": ("endpoint",),
    },
    "gs": {
        "token": ("token", "access_token"),
        "service_account": ("service_account", "service_account_key"),
        "endpoint": ("endpoint",),
    },
    "az": {
        "account_name": ("account_name", "account", "username"),
        "account_key": ("account_key", "access_key", "password"),
        "sas_key": ("sas_key", "sas_token"),
        "token": ("token", "access_token"),
        "client_id": ("client_id",),
        "client_secret": ("client_secret",),
        "tenant_id": ("tenant_id",),
        "authority_host": ("authority_host",),
        "endpoint": ("endpoint",),
    },
}
#: Sets of fields. At least one set must be complete.
_NEEDED: dict[str, tuple[tuple[str, ...], ...]] = {
    "s3": (("access_key_id", "secret_access_key"),),
    "gs": (("token",), ("service_account",)),
    "az": (
        ("account_name", "account_key"),
        ("account_name", "sas_key"),
        ("account_name", "token"),
        ("account_name", "client_id", "client_secret", "tenant_id"),
    ),
}


def fields_for(scheme: str, auth: Credential | None) -> dict[str, str]:
    """Return the credential's fields by the store's names; {} without an `auth`."""
    if auth is None:
        return {}
    values = _credential_values(scheme, auth)
    fields: dict[str, str] = {}
    for field, names in _NAMES[scheme].items():
        for name in names:
            value = values.get(name)
            if isinstance(value, str) and value:
                fields.setdefault(field, value)
    if not any(all(field in fields for field in needed) for needed in _NEEDED[scheme]):
        wanted = " or ".join(" + ".join(needed) for needed in _NEEDED[scheme])
        raise refuse(
            "config",
            f"auth {auth.name!r} ({auth.kind}) does not fit {scheme}://: it must have {wanted} "
            "(as its fields, or as one JSON text)",
        )
    return fields


def _credential_values(scheme: str, auth: Credential) -> Mapping[str, Any]:
    value = auth.fields.get("value")
    if not isinstance(value, str):
        return auth.fields
    try:
        parsed = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        # A scalar secret can only be a token.
        return {"token": value} if scheme != "s3" else {}
    if parsed.get("type") == "service_account":
        return {"service_account": value}
    return parsed


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Converts obstore's errors. Their texts contain times and addresses that differ between attempts, so the messages are
# written here.

_TRANSPORT = re.compile(r"reqwest|hyper|HttpError|HTTP error|error sending request")
#: The forwarder's response to a request without its token.
_NO_TOKEN = 407


def translated(problem: Exception, url: str, *, signed: bool, route: Route | None = None) -> Refused:
    """Return the task's error for an exception of obstore; errors of arclog are returned unchanged. The reason for a
    failed connection comes from its route.
    """
    if isinstance(problem, Refused):
        return problem
    from obstore import exceptions

    status, code, message, late = report_of(problem)
    detail = f" ({message})" if message else ""
    if isinstance(problem, FileNotFoundError) or status == 404:
        reason = (
            "there is no such bucket" if code in ("NoSuchBucket", "ContainerNotFound") else "there is no such object"
        )
        return refuse("not_found", f"{url}: {reason}", code or "NOT_FOUND")
    if isinstance(problem, exceptions.AlreadyExistsError):
        return refuse("conflict", f"{url}: already exists (if_absent)", "EXISTS")
    if isinstance(problem, exceptions.PreconditionError):
        return refuse("conflict", f"{url}: was changed while it was read{detail}", code or "CHANGED")
    denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    if isinstance(problem, denied) or status in (401, 403):
        hint = "" if signed else "; the request was not signed: give the task an `auth`"
        return refuse("auth", f"{url}: access denied{detail}{hint}", code or (f"HTTP_{status}" if status else "DENIED"))
    if isinstance(problem, (ValueError, exceptions.InvalidPathError)):
        return refuse(
            "config", f"{url}: the key cannot be used; its parts between slashes may not be empty, `.` or `..`"
        )
    if isinstance(problem, exceptions.NotSupportedError | NotImplementedError):
        return refuse("config", f"{url}: the store does not support this", "NOT_SUPPORTED")
    if status == _NO_TOKEN and route is not None:
        redirected = f"{url}: the server redirects to another server over http, which is not followed; set that server as the endpoint"
        return refuse("config", redirected, "REDIRECT_REFUSED")
    if status:
        kind = "rate_limit" if status == 429 else "server_error" if status >= 500 else "client_error"
        return Refused(
            error(
                kind,
                f"{url}: the server answered {status}{detail}",
                code=code or f"HTTP_{status}",
                retryable=ERROR_KINDS[kind],
            )
        )
    denial = route.take_problem() if route is not None else None
    if denial is not None:
        return Refused(error(denial.kind, f"{url}: {denial.message}", code=denial.code, retryable=denial.retryable))
    if late:
        return refuse(
            "timeout",
            f"{url}: the server did not answer in time (settings object.connect_timeout_s, object.read_timeout_s)",
        )
    if isinstance(problem, exceptions.BaseError) and not _TRANSPORT.search(str(problem)):
        return refuse("server_error", f"{url}: the response is not that of a store of this kind", "BAD_ANSWER")
    if isinstance(problem, exceptions.BaseError | OSError):
        return refuse("connection", f"{url}: the server cannot be reached, or the connection broke", "CONNECTION")
    raise problem


# ── cloud ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

#: Size of an upload's parts. S3 accepts 10,000 of them, and none below 5 MiB except the last.
_PART_BYTES = 8 * 1024 * 1024
_PARTS_AT_A_TIME = 4
_LISTED_AT_A_TIME = 1000
_RETRY_S = 30.0
#: How much a server that a playbook names may send during one task that is not content which the task has read: the
#: library keeps lists, errors and tokens in memory as a whole, without a limit.
_MOST_UNREAD = 64 * 1024 * 1024
#: Of this, the share of each object in a list.
_LISTED_BYTES = 8 * 1024


class Access(Struct, frozen=True):
    """The access to a bucket: everything that distinguishes one connection pool from another."""

    scheme: str
    bucket: str
    endpoint: str
    region: str
    allow_http: bool
    #: sorted credential fields; () means unsigned requests
    credential: tuple[tuple[str, str], ...]
    #: the setting `object.ambient_credentials`
    ambient: bool
    connect_timeout_s: float
    read_timeout_s: float
    retries: int

    @property
    def is_ambient(self) -> bool:
        """Whether the worker's own credentials are used. A server that a playbook names never gets them, and could
        redirect a request to the metadata service.
        """
        return self.ambient and not self.credential and not self.endpoint

    @property
    def is_named(self) -> bool:
        """Whether the playbook or its credential names a server. Its responses are counted for each task."""
        return bool(self.endpoint) or any(name == "authority_host" for name, _ in self.credential)


class _Stopped(Exception):
    """The upload was stopped."""


class Opened:
    """An obstore store and the route of its connections."""

    __slots__ = ("__weakref__", "route", "store")

    def __init__(self, store: Any, route: Route | None = None) -> None:
        self.store = store
        #: None if a proxy of the environment is used
        self.route = route


def open_store(access: Access, forwarder: Forwarder, guard: Guard | None) -> Opened:
    """Return a store whose connections the guard checks. Without a guard, the environment's proxy is used. Nothing is
    sent yet.
    """
    if guard is None:
        return Opened(_store(access, ""))
    route = forwarder.open_route(guard, access.connect_timeout_s, _MOST_UNREAD if access.is_named else 0)
    opened = Opened(_store(access, forwarder.address(route)), route)
    # A task may still use a store that was removed from the cache.
    weakref.finalize(opened, forwarder.close_route, route).atexit = False
    return opened


def _store(access: Access, proxy: str) -> Any:
    import obstore.store as stores

    # No total limit: the task's own time limit applies.
    shared = client_config(
        allow_http=access.allow_http,
        connect_s=access.connect_timeout_s,
        read_s=access.read_timeout_s,
        retries=access.retries,
        retry_s=_RETRY_S,
        proxy=proxy,
    )
    credential = dict(access.credential)
    try:
        if access.scheme == "s3":
            return stores.S3Store(access.bucket, **_s3(access, credential), **shared)
        if access.scheme == "gs":
            return stores.GCSStore(access.bucket, **_gs(access, credential), **shared)
        return stores.AzureStore(access.bucket, **_az(access, credential), **shared)
    except Refused:
        raise
    except Exception as problem:  # noqa: BLE001 - see below
        # obstore raises many types here, and their texts may repeat the arguments.
        raise refuse(
            "config",
            f"{access.scheme}://{access.bucket}: the store cannot be set up ({type(problem).__name__}); "
            "check endpoint, region and the fields of the credential",
        ) from None


# obstore begins with the worker's variables (AWS_…, GOOGLE_…, AZURE_…), and an option can replace a variable but not
# remove it. A credential provider takes precedence over all of them.

#: Variables with a key that the store sends with each request, whatever the credential.
_ENCRYPTION_KEYS = {"s3": ("AWS_SSE_CUSTOMER_KEY_BASE64",), "az": ("AZURE_STORAGE_ENCRYPTION_KEY",)}
#: Variables that take precedence over the key of a service account.
_SERVICE_ACCOUNTS = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "SERVICE_ACCOUNT", "GOOGLE_BEARER_TOKEN")
#: A part of a host's name. A slash in it would lead to another server.
_PART = re.compile(r"[A-Za-z0-9._-]*")
_AUTHORITY = "https://login.microsoftonline.com"


def _s3(access: Access, fields: dict[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {"region": access.region or fields.get("region") or "us-east-1"}
    _check_part("region", options["region"])
    if access.is_ambient:
        return options
    if access.endpoint:
        _check_unset(access, _ENCRYPTION_KEYS["s3"], "send it to the endpoint")
        options |= {"endpoint": access.endpoint, "aws_endpoint_url_s3": access.endpoint}
    if "access_key_id" not in fields:
        return {**options, **_unsigned()}
    token = fields.get("session_token")
    keys = {"access_key_id": fields["access_key_id"], "secret_access_key": fields["secret_access_key"], "token": token}
    return {**options, **_signed(keys)}


def _gs(access: Access, fields: dict[str, str]) -> dict[str, Any]:
    if access.is_ambient:
        return {}
    options: dict[str, Any] = {"base_url": access.endpoint} if access.endpoint else {}
    if "token" in fields:
        return {**options, **_signed({"token": fields["token"]})}
    if "service_account" in fields:
        _check_unset(access, _SERVICE_ACCOUNTS, "prefer it to the service account of the task")
        return {**options, "service_account_key": fields["service_account"], "skip_signature": False}
    return {**options, **_unsigned()}


def _az(access: Access, fields: dict[str, str]) -> dict[str, Any]:
    if access.is_ambient:
        return {}
    account = fields.get("account_name", "")
    # The emulator has a key and an address of its own.
    options: dict[str, Any] = {"account_name": account, "use_emulator": False}
    if access.endpoint:
        _check_unset(access, _ENCRYPTION_KEYS["az"], "send it to the endpoint")
        options["endpoint"] = access.endpoint
    else:
        _check_part("account_name", account)
    if "token" in fields:
        return {**options, **_signed({"token": fields["token"]})}
    if "account_key" in fields:
        try:
            key = base64.b64encode(base64.b64decode(fields["account_key"], validate=True)).decode()
        except ValueError:
            raise refuse("config", f"az://{access.bucket}: the account_key of the credential is not base64") from None
        return {**options, **_signed({"access_key": key})}
    if all(name in fields for name in ("client_id", "client_secret", "tenant_id")):
        # obstore exchanges these for a token, for which there is no provider.
        login = {name: fields[name] for name in ("client_id", "client_secret", "tenant_id")}
        login["authority_host"] = fields.get("authority_host", _AUTHORITY)
        return {**options, **login, "credential_type": "client_secret", "skip_signature": False}
    if "sas_key" in fields:
        parts = [part.strip() for part in unquote(fields["sas_key"]).lstrip("?").split("&") if part.strip()]
        if not all("=" in part for part in parts):
            raise refuse("config", f"az://{access.bucket}: the sas_key of the credential is not name=value&…")
        return {**options, **_signed({"sas_token": [tuple(part.split("=", 1)) for part in parts]})}
    return {**options, **_unsigned()}


def _signed(credential: dict[str, Any]) -> dict[str, Any]:
    answer = {**credential, "expires_at": None}
    return {"credential_provider": lambda: answer, "skip_signature": False}


def _unsigned() -> dict[str, Any]:
    return {"credential_provider": _no_credential, "skip_signature": True}


def _no_credential() -> NoReturn:
    raise PermissionError("an unsigned request has no credential")


def _check_part(name: str, text: str) -> None:
    if not _PART.fullmatch(text):
        raise refuse("config", f"{name}: only letters, digits, '.', '_' and '-' are allowed")


def _check_unset(access: Access, variables: tuple[str, ...], effect: str) -> None:
    """Refuse an access that a variable of the worker would change and no option can protect."""
    for variable in variables:
        if variable in os.environ:
            raise refuse(
                "config",
                f"{access.scheme}://{access.bucket}: {variable} is set in the worker's environment, and the library "
                f"would {effect}; unset it there (a result store can have it in results.credentials_file)",
            )


class Cloud:
    """The objects of one bucket."""

    def __init__(self, opened: Opened, at: Location, create_max_bytes: int, *, signed: bool) -> None:
        self._opened = opened
        self._store = opened.store
        self._at = at
        self._create_max_bytes = create_max_bytes
        self._signed = signed

    async def put(self, key: str, pieces: Pieces, content_type: str, *, if_absent: bool) -> ObjectMeta:
        import obstore

        attributes: Any = {"Content-Type": content_type}
        try:
            head, remaining = await _beginning(pieces, self._create_max_bytes if if_absent else _PART_BYTES)
            if remaining is None:
                body = b"".join(head)
                done = await obstore.put_async(
                    self._store,
                    key,
                    body,
                    attributes=attributes,
                    mode="create" if if_absent else "overwrite",
                    use_multipart=False,
                )
                return ObjectMeta(key, len(body), done["e_tag"], None, content_type, done["version"])
            if if_absent:
                raise refuse(
                    "limit",
                    f"{self._url(key)}: if_absent takes at most {self._create_max_bytes} bytes, since only an upload in "
                    "one piece can be refused when the object is there (setting object.if_absent_max_bytes)",
                    "object.if_absent_max_bytes",
                )
            source = _Source(head, remaining)
            done = await self._upload(key, source, attributes)
            return ObjectMeta(key, source.sent, done["e_tag"], None, content_type, done["version"])
        except Exception as problem:
            raise self._translated(problem, self._url(key)) from problem

    async def _upload(self, key: str, source: _Source, attributes: Any) -> Any:
        import obstore

        sending = asyncio.ensure_future(
            obstore.put_async(
                self._store,
                key,
                source,
                attributes=attributes,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_A_TIME,
            )
        )
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            source.stop()
            await asyncio.wait({sending})
            problem = None if sending.cancelled() else sending.exception()
            if isinstance(problem, Exception) and not isinstance(problem, _Stopped):  # of the request that aborts it
                reason = self._translated(problem, self._url(key)).problem.message
                log.warning(
                    "a cancelled upload could not be aborted, so its parts may remain in the bucket: %s", reason
                )
            raise

    async def get(self, key: str, part: Range | None) -> OpenedObject:
        import obstore

        try:
            if part is None:
                answer = await obstore.get_async(self._store, key)
                meta = _meta(answer.meta, answer.attributes)
                return OpenedObject(meta, 0, meta.size, self._pieces(key, answer, meta.size))
            # Servers handle a range after the end differently, so the size is requested first.
            described = await self.head(key)
            start, end = resolved(part, described.size)
            if start == end:
                return OpenedObject(described, start, end, _nothing())
            options: Any = {"range": (start, end)}
            if described.etag:
                options["if_match"] = described.etag
            answer = await obstore.get_async(self._store, key, options=options)
            return OpenedObject(described, start, end, self._pieces(key, answer, end - start))
        except Exception as problem:
            raise self._translated(problem, self._url(key)) from problem

    async def _pieces(self, key: str, answer: Any, length: int) -> AsyncIterator[bytes]:
        got = 0
        try:
            async for piece in answer.stream(min_chunk_size=PIECE):
                got += len(piece)
                self._count(len(piece))
                yield bytes(piece)
        except Exception as problem:
            raise self._translated(problem, self._url(key)) from problem
        if got != length:
            raise refuse("connection", f"{self._url(key)}: {got} of {length} bytes came", "CUT")

    async def head(self, key: str) -> ObjectMeta:
        import obstore

        options: Any = {"head": True}
        try:
            answer = await obstore.get_async(self._store, key, options=options)
            return _meta(answer.meta, answer.attributes)
        except Exception as problem:
            raise self._translated(problem, self._url(key)) from problem

    async def listing(self, prefix: str, *, recursive: bool) -> AsyncIterator[tuple[list[ObjectMeta], list[str]]]:
        import obstore

        under = prefix.rstrip("/") or None
        try:
            if not recursive:
                listed = await obstore.list_with_delimiter_async(self._store, under)
                yield [_meta(meta) for meta in listed["objects"]], list(listed["common_prefixes"])
                return
            async for chunk in obstore.list(self._store, under, chunk_size=_LISTED_AT_A_TIME):
                self._count(_LISTED_BYTES * len(chunk))
                yield [_meta(meta) for meta in chunk], []
        except Exception as problem:
            raise self._translated(problem, self._url(prefix)) from problem

    async def delete(self, keys: list[str]) -> None:
        import obstore

        for at in range(0, len(keys), _LISTED_AT_A_TIME):
            some = keys[at : at + _LISTED_AT_A_TIME]
            try:
                await obstore.delete_async(self._store, some if len(some) > 1 else some[0])
            except FileNotFoundError as problem:
                gone = self._translated(problem, self._url(some[0]))
                if "Bucket" in (gone.problem.code or "") or "Container" in (gone.problem.code or ""):
                    raise gone from problem
            except Exception as problem:
                shown = self._url(some[0]) if len(some) == 1 else f"{len(some)} keys of {self._url('')}"
                raise self._translated(problem, shown) from problem

    def _count(self, size: int) -> None:
        if self._opened.route is not None:
            self._opened.route.read(size)

    def _translated(self, problem: Exception, shown: str) -> Refused:
        return translated(problem, shown, signed=self._signed, route=self._opened.route)

    def _url(self, key: str) -> str:
        return Location(self._at.scheme, self._at.bucket, key).url


class _Source:
    """The pieces of an upload. After `stop`, the next read fails, which aborts the upload."""

    def __init__(self, head: list[bytes], remaining: Pieces) -> None:
        self._head = head
        self._rest = remaining
        self._stopped = asyncio.Event()
        self.sent = 0

    def stop(self) -> None:
        self._stopped.set()

    def __aiter__(self) -> _Source:
        return self

    async def __anext__(self) -> bytes:
        if self._stopped.is_set():
            raise _Stopped
        if self._head:
            piece = self._head.pop(0)
        else:
            piece = await self._next()
        self.sent += len(piece)
        return piece

    async def _next(self) -> bytes:
        coming = asyncio.ensure_future(anext(self._rest))
        stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                raise _Stopped
            return await coming
        finally:
            coming.cancel()
            stopping.cancel()


async def _beginning(pieces: Pieces, limit: int) -> tuple[list[bytes], Pieces | None]:
    """Return the first pieces and the rest. The rest is None if all pieces fit within the limit."""
    head: list[bytes] = []
    size = 0
    async for piece in pieces:
        head.append(piece)
        size += len(piece)
        if size > limit:
            return head, pieces
    return head, None


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


def _meta(meta: Mapping[str, Any], attributes: Mapping[str, str] | None = None) -> ObjectMeta:
    at = meta["last_modified"].astimezone(UTC).isoformat().replace("+00:00", "Z")
    kind = attributes.get("Content-Type") if attributes else None
    return ObjectMeta(meta["path"], meta["size"], meta["e_tag"], at, kind, meta["version"])
