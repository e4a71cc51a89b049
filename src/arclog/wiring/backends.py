"""Which store, result store and bus the settings ask for. The only place that knows all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from arclog.model.errors import SettingsError
from arclog.model.settings import Settings
from arclog.ports.bus import Bus
from arclog.ports.checks import Check
from arclog.ports.clock import Clock
from arclog.ports.results import Results
from arclog.ports.store import Store

DATABASE = "arclog.db"
#: folder of results that are too large for the log
RESULTS = "results"


def keeps_files(settings: Settings) -> bool:
    """The log is a file of the home, for the processes of this machine alone."""
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
    """The one other store that there is, and its driver."""
    scheme = url.partition(":")[0]  # nothing of what may be a password
    if scheme not in {"postgresql", "postgres"}:
        raise SettingsError(
            f"ARCLOG_STORE_URL: there is no store {scheme!r}; give postgresql://user:password@host/database"
        )
    try:
        import psycopg  # noqa: F401 - whether it is there
    except ImportError as missing:
        raise SettingsError(
            "ARCLOG_STORE_URL asks for PostgreSQL, which needs psycopg: install it with `pip install 'arclog[postgres]'`"
        ) from missing


async def store_checks(settings: Settings) -> Sequence[Check]:
    """What `arclog doctor` is told of a store that is no file."""
    url = settings.text("store.url")
    _require_postgres(url)
    from arclog.stores.postgres.checks import checks

    return await checks(url, settings)


def listen_url(settings: Settings) -> str:
    """Where PostgreSQL's notices are listened to: a connection of one's own, which a pooler may not give."""
    return settings.text("store.listen_url") or settings.text("store.url")


def choose_results(settings: Settings, store: Store) -> Results:  # noqa: ARG001 - the store is for those that share it
    url = settings.text("results.url")
    if not url:
        from arclog.results.files import FileResults

        return FileResults(Path(settings.text("home")) / RESULTS, settings)
    scheme = url.partition("://")[0]
    raise SettingsError(f"ARCLOG_RESULTS_URL: there is no result store {scheme!r}; give postgres, nats or s3://bucket")


def choose_bus(settings: Settings) -> Bus | None:
    """None: nobody else is there to be told."""
    url = settings.text("bus.url")
    if not url:
        return None
    scheme = url.partition("://")[0]
    raise SettingsError(f"ARCLOG_BUS_URL: there is no bus {scheme!r}; give nats://host:4222")
