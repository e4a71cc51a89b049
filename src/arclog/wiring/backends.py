"""Chooses the store, the result store and the bus by the settings. No other module knows all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arclog.model.config.extras import required
from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.ports.clock import Clock
from arclog.ports.results import Results
from arclog.ports.storage.store import Store

if TYPE_CHECKING:
    from arclog.ports.bus import Bus
    from arclog.ports.views.checks import Check

DATABASE = "arclog.db"
#: folder of results that are too large for the log
RESULTS = "results"


def keeps_files(settings: Settings) -> bool:
    """Return whether the log is a file of the home, for the processes of this machine only."""
    return not settings.text("store.url")


def choose_store(settings: Settings, clock: Clock) -> Store:
    url = settings.text("store.url")
    if not url:
        from arclog.stores.sqlite.store import SqliteStore

        return SqliteStore(Path(settings.text("home")) / DATABASE, clock=clock, settings=settings)
    _require_postgres(url)
    from arclog.stores.postgres.store import PostgresStore

    return PostgresStore(url, clock=clock, settings=settings)


def _require_postgres(url: str) -> None:
    """The PostgreSQL store and its driver."""
    if not url.strip().startswith(("postgresql://", "postgres://")):
        # The message does not repeat the value, which may be a password.
        raise SettingsError("ARCLOG_STORE_URL names no store; give postgresql://user:password@host/database")
    with required("postgres", "ARCLOG_STORE_URL"):
        import psycopg  # noqa: F401 - whether it is there


def compact(settings: Settings) -> int:
    """Rewrite the home's SQLite file; returns the bytes that this freed. Raises StoreUnavailable while another
    process has it open.
    """
    from arclog.stores.sqlite.connection.connect import rewrite

    file = Path(settings.text("home")) / DATABASE
    before = file.stat().st_size
    rewrite(str(file), settings.number("store.busy_timeout_s"))
    return max(before - file.stat().st_size, 0)


async def store_checks(settings: Settings) -> Sequence[Check]:
    """The checks of `arclog doctor` for a store that is not a file."""
    url = settings.text("store.url")
    _require_postgres(url)
    from arclog.stores.postgres.checks import checks

    return await checks(url, settings)


def choose_results(settings: Settings) -> Results:
    from arclog.results.store import BlobResults

    url = settings.text("results.url")
    scheme, slashes, _ = url.partition("://")
    if not url:
        from arclog.results.blobs.files import FileBlobs

        return BlobResults(FileBlobs(Path(settings.text("home")) / RESULTS), settings)
    if url == "postgres" or (slashes and scheme in ("postgres", "postgresql")):
        if not slashes and not settings.text("store.url"):
            raise SettingsError(
                "ARCLOG_RESULTS_URL is postgres, but ARCLOG_STORE_URL is not set; set it, or use "
                "postgresql://user:password@host/database"
            )
        with required("postgres", "ARCLOG_RESULTS_URL"):
            from arclog.results.blobs.postgres import PostgresBlobs
        return BlobResults(PostgresBlobs(url if slashes else settings.text("store.url"), settings), settings)
    if url == "nats":
        if not settings.text("bus.url"):
            raise SettingsError("ARCLOG_RESULTS_URL is nats, which requires ARCLOG_BUS_URL")
        with required("nats", "ARCLOG_RESULTS_URL"):
            from arclog.drivers.nats.cluster import Cluster
            from arclog.results.blobs.nats.blobs import NatsBlobs
        cluster, timeout_s = Cluster(settings), settings.number("results.timeout_s")
        return BlobResults(NatsBlobs(lambda: cluster.connect(timeout_s), f"NATS {cluster}", settings), settings)
    if slashes and scheme in ("s3", "gs", "az"):
        with required("object", "ARCLOG_RESULTS_URL"):
            from arclog.results.blobs.object import ObjectBlobs
        return BlobResults(ObjectBlobs(url, settings), settings)
    # An invalid value may be a misplaced password, so it is not repeated.
    raise SettingsError(
        "ARCLOG_RESULTS_URL names no result store; give postgres, nats, s3://bucket/prefix, gs://… or az://…"
    )


def choose_bus(settings: Settings) -> Bus | None:
    """Returns None if no other process is to be notified."""
    if settings.text("bus.url"):
        with required("nats", "ARCLOG_BUS_URL"):
            from arclog.buses.nats import NatsBus
        return NatsBus(settings)
    if keeps_files(settings):
        return None
    from arclog.buses.postgres import PostgresBus

    return PostgresBus(settings)
