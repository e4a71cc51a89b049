"""Blobs in a bucket of S3 (or a compatible store), of Google Cloud or of Azure. The comment below defines the keys, and
why storing, reading and removing never conflict.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import obstore
import obstore.store as stores
from msgspec import Struct
from obstore import exceptions

from arclog.drivers.http.client import proxies_of_environment
from arclog.drivers.http.forward import Forwarder
from arclog.drivers.http.guard import METADATA_SERVICES, guard_of
from arclog.drivers.objects import client_config, report_of
from arclog.model.config.settings import Settings
from arclog.model.errors import InvariantBroken, ResultStoreAway, ResultUnavailable, SettingsError
from arclog.ports.results import StoredBlob
from arclog.results.blobs.port import Blob, Blobs, Known, RangeBlob, Replaced, Upload
from arclog.results.parts import folder_of, is_sha256, tenant_of

# ── bucket ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# A bucket through obstore, and the meaning of its errors. Messages name the bucket, never a credential or obstore's
# texts, which repeat requests.


#: scheme → the store, and its option for an endpoint
_STORES: dict[str, tuple[Any, str]] = {
    "s3": (stores.S3Store, "endpoint"),
    "gs": (stores.GCSStore, "base_url"),
    "az": (stores.AzureStore, "endpoint"),
}
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
_FULL = frozenset({"QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity", "AccountQuotaExceeded"})
_LISTED_AT_A_TIME = 1000
_BEHIND_THE_END = 416
#: more attempts than fit into the patience
_TRIES = 1000


class Address(Struct, frozen=True):
    """The parsed URL of a result store."""

    scheme: str
    bucket: str
    prefix: str
    endpoint: str
    region: str

    @property
    def shown(self) -> str:
        """The address for messages."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")


def address_of(url: str) -> Address:
    """Parse `results.url`. Errors contain only its scheme."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise SettingsError("ARCLOG_RESULTS_URL is not an address; give s3://bucket/prefix, gs://… or az://…") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    allowed = {"region", "endpoint"} if parts.scheme == "s3" else {"endpoint"}
    wanted = f"give {parts.scheme}://bucket/prefix?{'&'.join(f'{name}=…' for name in sorted(allowed))}"
    if "@" in parts.netloc or ":" in parts.netloc or "@" in parts.path or "@" in parts.query:
        raise SettingsError(
            "ARCLOG_RESULTS_URL: credentials do not belong in the address; put them in the environment or in "
            "ARCLOG_RESULTS_CREDENTIALS_FILE"
        )
    if not parts.netloc or not options.keys() <= allowed or parts.fragment:
        raise SettingsError(f"ARCLOG_RESULTS_URL is not an address of a bucket; {wanted}")
    prefix = parts.path.strip("/")
    if any(segment in ("", ".", "..") for segment in prefix.split("/")) and prefix:
        raise SettingsError(f"ARCLOG_RESULTS_URL: the prefix has an empty part, '.' or '..'; {wanted}")
    return Address(parts.scheme, parts.netloc, prefix, options.get("endpoint", ""), options.get("region", ""))


def open_store(address: Address, settings: Settings, proxy: str = "") -> Any:
    """Return an obstore store that uses a proxy. Nothing is sent yet."""
    patience = settings.number("results.patience_s")
    kind, endpoint = _STORES[address.scheme]
    options: dict[str, Any] = {}
    if address.endpoint:
        options[endpoint] = address.endpoint
    if address.region:
        options["region"] = address.region
    config = _credentials(settings.text("results.credentials_file"))
    try:
        return kind(
            address.bucket,
            config=config or None,
            **client_config(
                allow_http=address.endpoint.startswith("http://"),
                connect_s=min(10.0, settings.number("results.timeout_s")),
                timeout_s=settings.number("results.timeout_s"),
                retries=_TRIES if patience else 0,
                retry_s=patience,
                proxy=proxy,
            ),
            **options,
        )
    except Exception as problem:  # noqa: BLE001 - see below
        # obstore raises many types here, and their texts may repeat the arguments.
        raise SettingsError(
            f"the result store {address.shown} cannot be set up ({type(problem).__name__}); check the options of "
            "ARCLOG_RESULTS_URL and the credentials"
        ) from None


def _credentials(file: str) -> dict[str, str]:
    if not file:
        return {}
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not a text"
        raise SettingsError(f"ARCLOG_RESULTS_CREDENTIALS_FILE {file} cannot be read: {why}") from None
    options: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals:
            raise SettingsError(f"ARCLOG_RESULTS_CREDENTIALS_FILE {file}: line {number} is not NAME=value")
        options[name.strip().lower()] = value.strip()
    return options


class Bucket:
    """The objects of one bucket."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.address = address_of(url)
        #: for messages
        self.place = self.address.shown
        self._timeout_s = settings.number("results.timeout_s")
        self._forwarder = Forwarder()
        self.store = open_store(self.address, settings, self._proxy(settings))

    def _proxy(self, settings: Settings) -> str:
        """Return the forwarder that checks connections; '' if the environment names a proxy, which then decides."""
        if proxies_of_environment():
            return ""
        # Without credentials in the settings, the machine's own ones may be used.
        guard = guard_of(settings, "network.allow_networks", "results", *METADATA_SERVICES)
        route = self._forwarder.open_route(guard, min(10.0, self._timeout_s))
        return self._forwarder.address(route)

    async def close(self) -> None:
        await asyncio.to_thread(self._forwarder.close)

    async def put(self, key: str, body: bytes) -> None:
        try:
            await obstore.put_async(self.store, key, body, use_multipart=False)
        except Exception as problem:  # noqa: BLE001 - `meant` raises what is none of its own
            raise self.meant(problem) from None

    async def get(self, key: str, start: int, end: int) -> bytes | None:
        """Return the bytes [start, end) of an object, fewer if it ends before; None if there is none."""
        try:
            return bytes(await obstore.get_range_async(self.store, key, start=start, end=end))
        except FileNotFoundError as problem:
            if _NO_BUCKET.search(str(problem)):
                raise self.meant(problem) from None
            return None
        except Exception as problem:  # noqa: BLE001 - `meant` raises what is none of its own
            if report_of(problem).status == _BEHIND_THE_END:
                return b""
            raise self.meant(problem) from None

    async def listing(self, prefix: str) -> AsyncIterator[list[Any]]:
        """Yield the objects under a prefix, in batches."""
        try:
            async for some in obstore.list(self.store, prefix or None, chunk_size=_LISTED_AT_A_TIME):
                yield list(some)
        except GeneratorExit:
            raise
        except Exception as problem:  # noqa: BLE001 - `meant` raises what is none of its own
            raise self.meant(problem) from None

    async def delete(self, key: str) -> None:
        try:
            await obstore.delete_async(self.store, key)
        except FileNotFoundError as problem:
            if _NO_BUCKET.search(str(problem)):
                raise self.meant(problem) from None
        except Exception as problem:  # noqa: BLE001 - `meant` raises what is none of its own
            raise self.meant(problem) from None

    def meant(self, problem: Exception) -> ResultUnavailable:
        """Return the error for an exception, with the remedy."""
        if isinstance(problem, ResultUnavailable):
            return problem
        text = str(problem)
        status, code, _, late = report_of(problem)
        where = f"the result store {self.place}"
        if _NO_BUCKET.search(text):
            return ResultUnavailable(f"{where}: there is no such bucket; create it, or correct ARCLOG_RESULTS_URL")
        if code in _FULL or status == 507:
            return ResultUnavailable(
                f"no room: a result could not be stored in {self.place} ({code or status}), and nothing of it is kept; free "
                "space there (`arclog gc` removes results that are no longer needed), then run it again"
            )
        denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        if isinstance(problem, denied) or status in (401, 403):
            return ResultUnavailable(
                f"{where}: access denied ({code or status or 'no credentials'}); the credentials must be able to list, read, write and "
                "delete. Check the credentials in the environment or in ARCLOG_RESULTS_CREDENTIALS_FILE"
            )
        if late:
            return ResultStoreAway(
                f"{where} did not answer within {self._timeout_s:g} s; check whether it is overloaded (setting "
                "results.timeout_s)"
            )
        if status == 429 or status >= 500:
            return ResultStoreAway(
                f"{where} answers {status}{f' ({code})' if code else ''}; check whether it is overloaded"
            )
        if status:
            return ResultUnavailable(f"{where} refuses ({code or status}); check ARCLOG_RESULTS_URL")
        if isinstance(problem, exceptions.BaseError | OSError):
            return ResultStoreAway(
                f"{where} cannot be reached, or the connection broke; check whether its server is running"
            )
        raise problem


# ── blobs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


# The keys of results in a bucket.
#
# <prefix>/<tenant>/<first two digits>/<sha256>/<stored at>-<nonce>-<bytes>[-list].zst    the stored file
# …                                                                      .ref            or: it is in .data/
# <prefix>/.data/<nonce>.zst                                                             a large file
#
# Storing content again creates a new object next to the previous one, which is removed afterwards. No object is ever
# changed, so removing an object never affects a newer one. The only requirement for a bucket is that it lists what was
# written.


DATA = ".data"
_VERSION = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})-([0-9]{1,19})(-list)?\.(zst|ref)")
_DATA = re.compile(r"([0-9a-f]{16})\.zst")


class Version(Struct, frozen=True, order=True):
    """One stored version of some content. Versions are ordered by storage time."""

    stored_at: int
    nonce: str
    stored_bytes: int
    listed: bool
    #: the content is in .data/
    referred: bool

    @property
    def name(self) -> str:
        listed = "-list" if self.listed else ""
        return f"{self.stored_at:016x}-{self.nonce}-{self.stored_bytes}{listed}.{'ref' if self.referred else 'zst'}"


class Keys:
    """The keys below one prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix}/" if prefix else ""

    @property
    def root(self) -> str:
        return self._prefix

    def of(self, tenant: str, sha256: str) -> str:
        """Return the prefix of the versions of some content."""
        return f"{self._prefix}{folder_of(tenant)}/{sha256[:2]}/{sha256}/"

    def of_version(self, tenant: str, sha256: str, version: Version) -> str:
        return f"{self.of(tenant, sha256)}{version.name}"

    def of_data(self, nonce: str) -> str:
        return f"{self._prefix}{DATA}/{nonce}.zst"

    @property
    def all_data(self) -> str:
        return f"{self._prefix}{DATA}/"

    def content(self, version: Version, key: str) -> str:
        """Return the key of the object with the stored file, given a version and its key."""
        return self.of_data(version.nonce) if version.referred else key

    def parsed(self, key: str) -> tuple[str, str, Version] | None:
        """Return tenant, sha256 and version; None if it is not the key of a version."""
        folder, _, rest = key.removeprefix(self._prefix).partition("/")
        digits, _, rest = rest.partition("/")
        sha256, _, name = rest.partition("/")
        tenant, version = tenant_of(folder), version_of(name)
        if tenant is None or version is None or not is_sha256(sha256) or not sha256.startswith(digits):
            return None
        return tenant, sha256, version

    def nonce_of(self, key: str) -> str | None:
        """Return the nonce in the key of a large file."""
        match = _DATA.fullmatch(key.removeprefix(self.all_data))
        return None if match is None else match[1]


def version_of(name: str) -> Version | None:
    match = _VERSION.fullmatch(name)
    if match is None:
        return None
    stamp, nonce, size, listed, form = match.groups()
    return Version(int(stamp, 16), nonce, int(size), listed is not None, form == "ref")


def new_nonce() -> str:
    return os.urandom(8).hex()


def superseded(versions: Sequence[Version]) -> list[Version]:
    """Return the versions that a later one replaces. A list can also be read as bytes, but not vice versa, so bytes do
    not replace a list.
    """
    return [
        version
        for version in versions
        if any(later > version and (later.listed or not version.listed) for later in versions)
    ]


class ObjectBlobs(Blobs):
    """See `blobs.port.Blobs`."""

    def __init__(self, url: str, settings: Settings | None = None) -> None:
        super().__init__()
        settings = settings or Settings()
        self.bucket = Bucket(url, settings)
        self.name = self.bucket.address.scheme
        self.place = self.bucket.place
        self.keys = Keys(self.bucket.address.prefix)
        self._max_bytes = settings.integer("results.max_bytes")

    def put(self, tenant: str, *, listed: bool) -> ObjectUpload:
        return ObjectUpload(self, tenant, listed=listed, max_bytes=self._max_bytes)

    async def get(self, tenant: str, sha256: str, indexes: Known = (), *, listed: bool = False) -> ObjectBlob | None:  # noqa: ARG002 - the index is read by itself
        versions = await self.versions(tenant, sha256)
        if not versions:
            return None
        version = (([version for version in versions if version.listed] if listed else []) or versions)[-1]
        key = self.keys.content(version, self.keys.of_version(tenant, sha256, version))
        return ObjectBlob(self.bucket, key, version.stored_bytes)

    async def stat(self, tenant: str, sha256: str) -> StoredBlob | None:
        versions = await self.versions(tenant, sha256)
        return _blob(tenant, sha256, versions[-1]) if versions else None

    async def delete(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        versions = await self.versions(tenant, sha256)
        if not versions or (stored_at is not None and versions[-1].stored_at != stored_at):
            return False
        for version in versions:
            await self._delete(tenant, sha256, version)
        return True

    async def list_all(self) -> AsyncIterator[StoredBlob]:
        async for tenant, sha256, versions in self._every():
            yield _blob(tenant, sha256, max(versions))

    async def sweep(self, older_than: int) -> int:
        # Data first: a file that is referenced in the meantime is found below.
        orphans: dict[str, str] = {}
        async for some in self.bucket.listing(self.keys.all_data):
            for entry in some:
                nonce = self.keys.nonce_of(entry["path"])
                if nonce is not None and entry["last_modified"].timestamp() * 1_000_000 < older_than:
                    orphans[nonce] = entry["path"]
        count = 0
        async for tenant, sha256, versions in self._every():
            gone = {version for version in superseded(versions) if version.stored_at < older_than}
            for version in gone:
                await self._delete(tenant, sha256, version)
            count += len(gone)
            for version in versions:
                if version.referred:
                    orphans.pop(version.nonce, None)
        for key in orphans.values():
            await self.bucket.delete(key)
        return count + len(orphans)

    async def versions(self, tenant: str, sha256: str) -> list[Version]:
        """Return the stored versions of some content, the latest last."""
        stored: list[Version] = []
        async for some in self.bucket.listing(self.keys.of(tenant, sha256)):
            parsed = [self.keys.parsed(entry["path"]) for entry in some]
            stored += [parts[2] for parts in parsed if parts is not None and parts[:2] == (tenant, sha256)]
        return sorted(stored)

    async def tidy(self, tenant: str, sha256: str, upto: Version) -> None:
        """Remove the versions that this one replaces."""
        versions = [version for version in await self.versions(tenant, sha256) if version <= upto]
        for old in superseded(versions):
            await self._delete(tenant, sha256, old)

    async def close(self) -> None:
        await super().close()
        await self.bucket.close()

    def now(self) -> int:
        return time.time_ns() // 1000

    async def _delete(self, tenant: str, sha256: str, version: Version) -> None:
        await self.bucket.delete(self.keys.of_version(tenant, sha256, version))
        if version.referred:
            await self.bucket.delete(self.keys.of_data(version.nonce))

    async def _every(self) -> AsyncIterator[tuple[str, str, list[Version]]]:
        """Yield all contents. Buckets list keys in order, in which the versions of one content are adjacent."""
        at: tuple[str, str] | None = None
        versions: list[Version] = []
        async for some in self.bucket.listing(self.keys.root):
            for entry in some:
                parsed = self.keys.parsed(entry["path"])
                if parsed is None:
                    continue
                if at != parsed[:2]:
                    if at is not None:
                        yield *at, versions
                    at, versions = parsed[:2], []
                versions.append(parsed[2])
        if at is not None:
            yield *at, versions


def _blob(tenant: str, sha256: str, version: Version) -> StoredBlob:
    return StoredBlob(tenant, sha256, version.stored_bytes, version.stored_at)


class ObjectBlob(RangeBlob):
    """An object of a known size."""

    def __init__(self, bucket: Bucket, key: str, size: int) -> None:
        super().__init__(size)
        self.identity = key
        self._bucket = bucket
        self._key = key

    async def read(self, start: int, end: int) -> bytes:
        got = await self._bucket.get(self._key, start, end)
        if got is None:
            raise Replaced
        return got


# Uploads frames to a bucket: in one request if there are few, else as a multipart upload that runs while they arrive. A
# failed upload is aborted: its source raises, which makes obstore remove the parts that it sent.


#: A file up to this size is sent in one request, a larger one in parts of this size: the minimum of S3, at most 10,000
#: of them.
PIECE_BYTES = 5 * 1024 * 1024
_MOST_PIECES = 9_000
_AT_A_TIME = 2


class _Stopped(Exception):
    """The upload was stopped."""


class ObjectUpload(Upload):
    """A new version of some content, next to the previous ones, which are removed afterwards."""

    def __init__(self, blobs: ObjectBlobs, tenant: str, *, listed: bool, max_bytes: int) -> None:
        self._blobs = blobs
        self._bucket = blobs.bucket
        self._tenant = tenant
        self._listed = listed
        self._piece = max(PIECE_BYTES, -(-max_bytes // _MOST_PIECES))
        self._nonce = new_nonce()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._bytes = 0
        self._upload: _Upload | None = None
        #: whether there may be an unreferenced object in .data
        self._unreferred = False

    async def put(self, frame: bytes) -> None:
        self._bytes += len(frame)
        if self._upload is None:
            self._held.append(frame)
            self._held_bytes += len(frame)
            if self._held_bytes <= PIECE_BYTES:
                return
            self._unreferred = True
            self._upload = _Upload(self._bucket, self._blobs.keys.of_data(self._nonce), self._piece)
            held, self._held = self._held, []
            for piece in held:
                await self._upload.give(piece)
        else:
            await self._upload.give(frame)

    async def stored(self, sha256: str) -> Blob | None:  # noqa: ARG002
        """Return None, since a new version never replaces a list by bytes."""
        return None

    async def finish(self, end: bytes, sha256: str) -> bool:
        if self._upload is not None:
            await self._upload.give(end)
            await self._upload.end()
            body = self._blobs.keys.of_data(self._nonce).encode()
        else:
            body = b"".join([*self._held, end])
        before = await self._blobs.versions(self._tenant, sha256)
        version = Version(
            stored_at=max(self._blobs.now(), *(version.stored_at + 1 for version in before), 0),
            nonce=self._nonce,
            stored_bytes=self._bytes + len(end),
            listed=self._listed,
            referred=self._upload is not None,
        )
        try:
            await self._bucket.put(self._blobs.keys.of_version(self._tenant, sha256, version), body)
        except ResultStoreAway:
            self._unreferred = False  # it may have been written; then gc finds out
            raise
        self._unreferred = False
        with suppress(ResultUnavailable):  # versions that cannot be removed now are leftovers
            await self._blobs.tidy(self._tenant, sha256, version)
        return True

    async def renew(self, sha256: str) -> bool:
        raise InvariantBroken(f"{sha256} cannot be renewed: `stored` returns no blob")

    async def discard(self) -> None:
        self._held.clear()
        if self._upload is not None and not self._upload.is_done:
            await self._upload.stop()
        if self._unreferred:
            self._unreferred = False
            await self._bucket.delete(self._blobs.keys.of_data(self._nonce))


class _Upload:
    """An upload in progress. At most one piece waits for it."""

    def __init__(self, bucket: Bucket, key: str, piece_bytes: int) -> None:
        self._bucket = bucket
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._stopped = asyncio.Event()
        self._sending: asyncio.Future[Any] = asyncio.ensure_future(
            obstore.put_async(bucket.store, key, self, chunk_size=piece_bytes, max_concurrency=_AT_A_TIME)
        )

    @property
    def is_done(self) -> bool:
        return self._sending.done()

    async def give(self, piece: bytes | None) -> None:
        """Pass the next piece to the upload. Raises if the upload failed."""
        giving = asyncio.ensure_future(self._pieces.put(piece))
        await asyncio.wait({giving, self._sending}, return_when=asyncio.FIRST_COMPLETED)
        if not giving.done():
            giving.cancel()
            await self._ended()

    async def end(self) -> None:
        await self.give(None)
        await self._ended()

    async def _ended(self) -> None:
        try:
            await self._sending
        except Exception as problem:  # noqa: BLE001 - `meant` raises what is none of its own
            raise self._bucket.meant(problem) from None

    async def stop(self) -> None:
        self._stopped.set()
        await asyncio.gather(self._sending, return_exceptions=True)

    def __aiter__(self) -> _Upload:
        return self

    async def __anext__(self) -> bytes:
        coming = asyncio.ensure_future(self._pieces.get())
        stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._stopped.is_set():
                raise _Stopped
            piece = coming.result()
        finally:
            coming.cancel()
            stopping.cancel()
        if piece is None:
            raise StopAsyncIteration
        return piece
