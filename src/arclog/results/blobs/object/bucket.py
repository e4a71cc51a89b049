"""A bucket through obstore, and the meaning of its errors. Messages name the bucket, never a credential or obstore's
texts, which repeat requests.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
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
from arclog.model.errors import ResultStoreAway, ResultUnavailable, SettingsError

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
    known = {"region", "endpoint"} if parts.scheme == "s3" else {"endpoint"}
    wanted = f"give {parts.scheme}://bucket/prefix?{'&'.join(f'{name}=…' for name in sorted(known))}"
    if "@" in parts.netloc or ":" in parts.netloc or "@" in parts.path or "@" in parts.query:
        raise SettingsError(
            "ARCLOG_RESULTS_URL: credentials do not belong into the address; give them by the environment or by "
            "ARCLOG_RESULTS_CREDENTIALS_FILE"
        )
    if not parts.netloc or not options.keys() <= known or parts.fragment:
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
            f"the result store {address.shown} cannot be set up ({type(problem).__name__}); look at the options of "
            "ARCLOG_RESULTS_URL and at the credentials"
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
                f"{where}: access denied ({code or status or 'no credentials'}); it must allow to list, read, write and "
                "delete. Look at the credentials in the environment or in ARCLOG_RESULTS_CREDENTIALS_FILE"
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
            return ResultUnavailable(f"{where} refuses ({code or status}); look at ARCLOG_RESULTS_URL")
        if isinstance(problem, exceptions.BaseError | OSError):
            return ResultStoreAway(f"{where} cannot be reached, or the connection broke; look whether its server runs")
        raise problem
