"""Which store, result store and bus the settings ask for. The only place that knows all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


def choose_results(settings: Settings) -> Results:
    url = settings.text("results.url")
    scheme, slashes, _ = url.partition("://")
    if not url:
        from arclog.results.files import FileResults

        return FileResults(Path(settings.text("home")) / RESULTS, settings)
    if url == "postgres" or (slashes and scheme in ("postgres", "postgresql")):
        if not slashes and not settings.text("store.url"):
            raise SettingsError(
                "ARCLOG_RESULTS_URL is postgres, which is where ARCLOG_STORE_URL says, and that is not set; set it, or give "
                "postgresql://user:password@host/database"
            )
        with _installed("postgres"):
            from arclog.results.postgres import PostgresResults
        return PostgresResults(url if slashes else settings.text("store.url"), settings)
    if url == "nats":
        if not settings.text("bus.url"):
            raise SettingsError("ARCLOG_RESULTS_URL is nats, which needs ARCLOG_BUS_URL to say where NATS is")
        with _installed("nats"):
            from arclog.buses.nats_address import address_of
            from arclog.buses.nats_connect import connect
            from arclog.results.nats import NatsResults
        address, timeout_s = address_of(settings), settings.number("results.timeout_s")
        return NatsResults(lambda: connect(address, timeout_s), f"NATS {address}", settings)
    if slashes and scheme in ("s3", "gs", "az"):
        with _installed("object"):
            from arclog.results.objects import ObjectResults
        return ObjectResults(url, settings)
    # What is not understood may be a password in a wrong place.
    raise SettingsError(
        "ARCLOG_RESULTS_URL names no result store; give postgres, nats, s3://bucket/prefix, gs://… or az://…"
    )


@contextmanager
def _installed(extra: str) -> Iterator[None]:
    """While a result store is imported: what it needs may not be there."""
    try:
        yield
    except ImportError as problem:
        raise SettingsError(
            f"ARCLOG_RESULTS_URL needs a library that is not installed ({problem.name}): pip install 'arclog[{extra}]'"
        ) from None


def choose_bus(settings: Settings) -> Bus | None:
    """None: nobody else is there to be told."""
    if settings.text("bus.url"):
        try:
            from arclog.buses.nats import NatsBus
        except ImportError:
            raise SettingsError("ARCLOG_BUS_URL: the driver of NATS is missing; install arclog[nats]") from None
        return NatsBus(settings)
    if keeps_files(settings):
        return None
    from arclog.buses.postgres import PostgresBus

    return PostgresBus(settings)
