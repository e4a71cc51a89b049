"""Opens the runs for a command: in a home on this machine, or at a server. Only this module distinguishes the two.

A command that only reads never creates a home.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import Usage
from arclog.model.config.settings import Settings
from arclog.model.errors import NewerLog, NotFound, RequestRejected
from arclog.model.ids import MAX_ID, parse_id

if TYPE_CHECKING:
    import logging

    from arclog.ports.views.api import Api, ListedRun

#: the newest run
LAST = "last"
_PAGE = 50
#: The number of digits of an id since 2024, and for a long time.
_ID_LENGTHS = (18, 19)
#: Runs that are listed when the beginning of an id matches several.
_CANDIDATES = 5


def settings_of(options: Any) -> Settings:
    from arclog.wiring.settings import load_settings

    if options.home == "":
        raise Usage("--home is empty; name a folder")
    if options.home is not None and options.server is not None:
        raise Usage("use either --home or --server, not both")
    overrides = {"home": options.home, "client.server": options.server, "client.token_file": options.token_file}
    if options.home is not None:
        overrides["client.server"] = ""  # an explicit home takes precedence over ARCLOG_SERVER
    return load_settings({name: value for name, value in overrides.items() if value is not None})


def server_of(settings: Settings) -> str:
    """The server's address, '' if runs are in this process."""
    return settings.text("client.server")


def opened(settings: Settings, *, read_only: bool = False) -> AbstractAsyncContextManager[Any]:
    """Store, engine and worker in this process; or a server, which has its own."""
    if server_of(settings):
        from arclog.wiring.remote import remote

        return remote(settings)
    return _embedded(settings, read_only=read_only)


@asynccontextmanager
async def _embedded(settings: Settings, *, read_only: bool) -> AsyncIterator[Any]:
    import logging

    from arclog.wiring.embedded import embedded

    log = logging.getLogger("arclog.engine")
    log.addFilter(_is_not_of_newer_log)
    try:
        async with embedded(settings, read_only=read_only) as runtime:
            yield runtime
    finally:
        log.removeFilter(_is_not_of_newer_log)


def _is_not_of_newer_log(record: logging.LogRecord) -> bool:
    """Return False for a log that a newer release wrote: it is the error of the command itself. Servers log it."""
    return not (isinstance(record.args, tuple) and any(isinstance(value, NewerLog) for value in record.args))


def exists(settings: Settings) -> bool:
    """Return whether there can be any runs."""
    elsewhere = server_of(settings) or settings.text("store.url")
    return bool(elsewhere) or (Path(settings.text("home")) / "arclog.db").exists()


def with_run(options: Any, work: Callable[[Api, str], Awaitable[int]], *, read_only: bool = True) -> int:
    """Call `work` with the run that `options.id` names."""
    import asyncio

    settings = settings_of(options)
    require(settings, options.id)

    async def go() -> int:
        async with opened(settings, read_only=read_only) as runtime:
            return await work(runtime.api, await resolve(runtime.api, options.id))

    return asyncio.run(go())


def require(settings: Settings, raw_id: str) -> None:
    """Refuse an invalid id, and any id if there is no home yet."""
    if raw_id != LAST:
        checked(raw_id)
    if not exists(settings):
        raise NotFound(f"there is no run {raw_id}: {nothing_yet(settings)}")


def checked(raw_id: str) -> str:
    try:
        return str(parse_id(raw_id, "execution id"))
    except RequestRejected as error:
        raise RequestRejected(f"{error}, or use `last` for the newest run") from None


async def resolve(api: Api, raw_id: str) -> str:
    """The execution id that a user means: an id, the beginning of one, or `last`."""
    if raw_id != LAST:
        return await _by_prefix(api, checked(raw_id))
    before = ""
    while page := await api.list(before=before, limit=_PAGE):
        for run in page:
            if run.parent is None:  # a child run belongs to the run that called it
                return run.execution_id
        before = page[-1].execution_id
    raise NotFound("there are no runs yet; start one with `arclog run FILE`")


async def _by_prefix(api: Api, prefix: str) -> str:
    """The only run whose id begins with these digits. A complete id is not checked here; its use shows whether it
    exists.
    """
    if len(prefix) in _ID_LENGTHS:
        return prefix
    runs: dict[str, ListedRun] = {}
    for more in (0, *(length - len(prefix) for length in _ID_LENGTHS if length > len(prefix))):
        lowest, above = int(prefix) * 10**more, (int(prefix) + 1) * 10**more
        for run in await api.list(before=str(min(above, MAX_ID)), limit=_CANDIDATES + 1):
            if int(run.execution_id) >= lowest:
                runs[run.execution_id] = run
    if prefix in runs:
        return prefix
    if not runs:
        raise NotFound(f"no execution has the id {prefix}, or an id that starts with it; `arclog list` shows all runs")
    if len(runs) > 1:
        from arclog.cli.render import moment

        shown = [
            f"{run.execution_id} ({run.name}, {run.state.lower()}, {moment(run.started_at or run.created_at)})"
            for run in sorted(runs.values(), key=lambda run: int(run.execution_id), reverse=True)
        ]
        more_there = ", …" if len(shown) > _CANDIDATES else ""
        raise RequestRejected(f"{prefix} matches several ids: {', '.join(shown[:_CANDIDATES])}{more_there}")
    return next(iter(runs))


def nothing_yet(settings: Settings) -> str:
    return f"no runs yet {place_of(settings)}; start one with `arclog run FILE`"


def place_of(settings: Settings) -> str:
    """The place of the runs, for messages."""
    if server := server_of(settings):
        return f"at {server}"
    return "in the store of ARCLOG_STORE_URL" if settings.text("store.url") else f"in {settings.text('home')}"
