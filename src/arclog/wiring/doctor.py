"""All health checks of one installation: the backends that its settings choose, and the work in its store.

`diagnosed` is used by the route of a server and by `arclog doctor` on a home.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from arclog import __version__
from arclog.engine.duties.doctor import Probe, WorkDoctor, examined
from arclog.model.config.extras import required
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError, SecretUnavailable, SettingsError
from arclog.model.ids import MICROS
from arclog.ports import work
from arclog.ports.boundary import Boundary
from arclog.ports.secrets import Vault
from arclog.ports.views.checks import CONFINEMENT, FAIL, LOCAL_FILES, OK, SECRETS, WARN, Check, Diagnosis
from arclog.sandbox.confinement_settings import data_root
from arclog.wiring.backends import DATABASE, keeps_files
from arclog.wiring.embedded import Embedded, embedded
from arclog.wiring.file_root import danger_of_file_root
from arclog.wiring.homes.folders import Scratch
from arclog.wiring.secrets import choose_manager, choose_vault, left_in_home

if TYPE_CHECKING:
    from arclog.drivers.nats.address import Server

#: The tenant under which the result store is tested; no run can have this name.
_TENANT = "arclog-doctor"


async def diagnosed(settings: Settings, runtime: Embedded, tenant: str = "", *, served: bool = True) -> Diagnosis:
    """The checks of this process's store, bus, results and work."""
    probes = [
        *backend_probes(settings, runtime if served else None),
        ("clock", lambda: _clock(settings, runtime)),
        ("results", lambda: _results(settings, runtime)),
        (SECRETS, lambda: _secrets(settings, runtime)),
        *WorkDoctor(runtime.engine, runtime.api, Boundary.owner(settings, tenant), served=served).probes(),
    ]
    checks = await examined(probes, settings.number("doctor.check_s"))
    return Diagnosis(__version__, work.PROTOCOL, runtime.engine.clock.now(), checks)


def backend_probes(settings: Settings, server: Embedded | None = None) -> list[Probe]:
    """Checks that need no open store; they also show why it cannot be opened. `server` is the one that is checked, if any."""
    probes: list[Probe] = [("store", lambda: _store(settings))]
    if settings.text("bus.url"):
        probes.append(("bus", lambda: _bus(settings)))
    return [*probes, (CONFINEMENT, lambda: _confinement(settings)), (LOCAL_FILES, lambda: _files(settings, server))]


def can_be_opened(checks: Sequence[Check]) -> bool:
    """Return whether there is a store to open, according to `backend_probes`. Opening an empty one would create its
    schema.
    """
    return not any(
        (check.name in ("home", "schema") and check.status != OK) or (check.name == "store" and check.status == FAIL)
        for check in checks
    )


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Embedded]:
    """An embedded arclog with these settings, read-only."""
    async with embedded(settings, read_only=True, works_here=False) as runtime:
        yield runtime


async def _store(settings: Settings) -> Sequence[Check]:
    if keeps_files(settings):
        from arclog.stores.sqlite.checks import checks

        path = Path(settings.text("home")) / DATABASE
        if not await asyncio.to_thread(path.exists):
            remedy = "`arclog run FILE`, `arclog up` or `arclog key create` makes it; or set ARCLOG_HOME to where it is"
            return [Check("home", WARN, f"there is no {path} yet", remedy)]
        free, busy = settings.integer("doctor.min_free_bytes"), settings.number("store.busy_timeout_s")
        return await asyncio.to_thread(checks, os.fspath(path), busy, free, settings.number("doctor.pages_s"))
    from arclog.wiring.backends import store_checks

    return await store_checks(settings)


async def _clock(settings: Settings, runtime: Embedded) -> Sequence[Check]:
    """Leases use the store's clock, so this process's clock must be close to it. The clock of a home follows the
    machine's.
    """
    before = runtime.engine.clock.now()
    reference, owner = (
        (runtime.engine.wall.now(), "this machine")
        if keeps_files(settings)
        else (await runtime.engine.store.time(), "the store")
    )
    own = (before + runtime.engine.clock.now()) // 2
    apart = (own - reference) / MICROS
    detail = f"{abs(apart):.3f} s {'ahead of' if apart >= 0 else 'behind'} {owner}'s"
    if abs(apart) <= settings.number("doctor.max_skew_s"):
        return [Check("clock", OK, detail)]
    if keeps_files(settings):
        remedy = "the machine's clock was set; timers follow it at 1 %, schedules at once; no action is needed"
        return [Check("clock", WARN, detail, remedy)]
    return [Check("clock", WARN, detail, "keep the machines' clocks together: run chrony or systemd-timesyncd on each")]


async def _results(settings: Settings, runtime: Embedded) -> Sequence[Check]:
    """Store something, read it back, remove it."""
    results, summary = runtime.results, f"{runtime.results.name}: written, read back and removed"
    content = os.urandom(32)
    writer = results.writer(_TENANT, content_type="application/octet-stream")
    try:
        await writer.write(content)
        stored = await writer.commit()
        read_back = b"".join([chunk async for chunk in results.chunks(_TENANT, stored.sha256)])
        await results.remove(_TENANT, stored.sha256)
    except (ArclogError, OSError) as problem:
        remedy = "large results of tasks fail until it can be written; see results.url, its rights and its room"
        return [Check("results", FAIL, f"{results.name}: {problem}", remedy)]
    finally:
        with contextlib.suppress(ArclogError, OSError):
            await writer.abandon()
    if read_back != content:
        remedy = "the store at results.url changes the stored data; stop using it"
        return [Check("results", FAIL, f"{results.name}: other bytes came back", remedy)]
    if not keeps_files(settings) and not settings.text("results.url"):
        detail = f"{summary}; they are in this home, where other servers of this store cannot read them"
        return [Check("results", WARN, detail, "set ARCLOG_RESULTS_URL on all servers, for example to postgres")]
    return [Check("results", OK, summary)]


async def _secrets(settings: Settings, runtime: Embedded) -> Sequence[Check]:
    """Check whether this process can open the stored secrets, and whether there are secrets in an unused place."""
    vault = choose_vault(settings, runtime.engine.store)
    checks = [await _vault_check(vault)]
    if left := await asyncio.to_thread(left_in_home, settings, vault):
        checks.append(Check(SECRETS, WARN, left, "set them there (arclog secret set), then remove the file"))
    if (managed := await _managed(settings, runtime)) is not None:
        checks.append(managed)
    return checks


async def _managed(settings: Settings, runtime: Embedded) -> Check | None:
    """Check whether the secret manager accepts this process."""
    try:
        manager = choose_manager(settings, runtime.engine.clock)
        if manager is None:
            return None
        try:
            await manager.check()
        finally:
            await manager.close()
    except (SecretUnavailable, SettingsError) as problem:
        detail, _, remedy = str(problem).rpartition("; ")
        return Check(SECRETS, FAIL, detail or remedy, remedy if detail else "see docs/playbook.md, Secret managers")
    return Check(SECRETS, OK, f"{manager.place} answers, and knows this process")


async def _vault_check(vault: Vault) -> Check:
    try:
        wrong, count = await vault.problem(), len(await vault.infos())
    except SecretUnavailable as problem:
        wrong, count = str(problem), 0
    if wrong:
        detail, _, remedy = wrong.partition("; ")
        return Check(SECRETS, FAIL, detail, remedy or "tasks that need one fail until this is fixed")
    return Check(
        SECRETS, OK, f"{count} kept by {vault.place}, and this machine's key opens them" if count else "none is kept"
    )


async def _confinement(settings: Settings) -> Sequence[Check]:
    """Check by trial how tasks on this machine are confined."""
    from arclog.sandbox.probe import PROMISES, held

    scratch = await asyncio.to_thread(Scratch)
    try:
        confinement = await held(settings, scratch.folder)
    finally:
        await asyncio.to_thread(scratch.remove)
    shown = f"{confinement.level}, as {confinement.user}"
    if confinement.problem:
        remedy = "python, shell and duckdb tasks fail until this is fixed; tasks.confinement=off runs them unconfined"
        return [Check(CONFINEMENT, FAIL, f"{shown}: {confinement.problem}", remedy)]
    if confinement.facts is None:
        remedy = (
            "tasks of python, shell and duckdb can do everything that this user can; set tasks.confinement=standard"
        )
        return [Check(CONFINEMENT, WARN, f"{shown}: tasks are not confined", remedy)]
    holds = [
        f"{promise.name}: {confinement.rests_on(promise)}" for promise in PROMISES if confinement.rests_on(promise)
    ]
    return [
        Check(CONFINEMENT, OK, f"{shown}; {'; '.join(holds)}"),
        *(
            Check(CONFINEMENT, WARN, f"does not hold here: {promise.text}", promise.remedy)
            for promise in confinement.lacking()
        ),
    ]


async def _files(settings: Settings, server: Embedded | None) -> Sequence[Check]:
    """Check which local files tasks of others share."""
    root, is_set = data_root(settings), bool(settings.text("object.file_root"))
    if root is None:
        return [Check(LOCAL_FILES, OK, "tasks have none (object.file_root)")]
    danger = await asyncio.to_thread(danger_of_file_root, settings)
    # Without keys, and in the folder where `arclog up` was started, tasks are those of its own user.
    if danger and (is_set or (server is not None and await _has_callers(settings, server))):
        remedy = "set object.file_root to a folder that has only files of tasks, or to none"
        return [Check(LOCAL_FILES, WARN, danger, remedy)]
    if server is None and not is_set:
        detail = f"`arclog run` uses those in {root}; workers of servers have none (object.file_root is not set)"
        return [Check(LOCAL_FILES, OK, detail)]
    return [Check(LOCAL_FILES, OK, f"tasks share those in {root} (object.file_root)")]


async def _has_callers(settings: Settings, server: Embedded) -> bool:
    """Return whether callers have keys or tokens, so that they may be others than the user of this machine."""
    return bool(settings.text("auth.jwt_issuer")) or await server.engine.store.has_keys()


async def _bus(settings: Settings) -> Sequence[Check]:
    with required("nats", "ARCLOG_BUS_URL"):
        from arclog.drivers.nats.cluster import Cluster
    return [await _bus_server(server) for server in Cluster(settings).servers]


async def _bus_server(server: Server) -> Check:
    from arclog.drivers.nats.connect import greeting

    remedy = "runs continue without it, more slowly: start NATS, or correct ARCLOG_BUS_URL or the network"
    try:
        answer = await greeting(server)
    except OSError as problem:
        return Check("bus", WARN, f"{server} cannot be reached: {problem.strerror or problem}", remedy)
    except ValueError as problem:
        return Check(
            "bus", FAIL, f"{server} is not a NATS server: {problem}", "name NATS' client port, 4222 if not set"
        )
    detail = f"NATS {answer.version} at {server}"
    if not answer.jetstream:
        return Check("bus", FAIL, f"{detail}, without JetStream", "start it with -js, or `jetstream {}` in its file")
    return Check("bus", OK, f"{detail}, with JetStream")
