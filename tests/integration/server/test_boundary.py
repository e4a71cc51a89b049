"""The boundary between tenants: every method of a workspace, called by a principal of another tenant."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec
import pytest

from arclog.engine.dispatch.scoped_control import ScopedControl
from arclog.engine.runs.ingest import EngineIngest
from arclog.engine.views.run_contract import EngineRuns, new_cursors
from arclog.model.commands import Command, Report
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError, InvariantBroken, NotAllowed, NotFound, NotHolder
from arclog.model.events import Event
from arclog.model.principal import ROLES, Principal
from arclog.ports.boundary import Boundary
from arclog.ports.control import WorkerInfo
from arclog.ports.storage.access import NewKey
from arclog.ports.storage.pools import NewResource
from arclog.ports.storage.schedules import NewSchedule
from arclog.ports.storage.store import Scope
from arclog.ports.storage.task_logs import LogLine
from arclog.ports.views.api import ExecuteRequest, ForkRequest, RegisterRequest, SignalRequest
from arclog.ports.views.checks import Diagnosis
from arclog.ports.views.history import SimulateRequest
from arclog.ports.views.overview import RunQuery
from arclog.ports.views.runs import RunSignal, StartRun
from arclog.server.auth.audit import Audit
from arclog.server.services import Services
from arclog.server.workspace import Workspace
from arclog.wiring.embedded import Embedded, embedded
from arclog.wiring.secrets import choose_vault

SECRET = "acmes-own"
FLOW = f"metadata: {{name: {SECRET}, path: {SECRET}/flow}}\nworkflow:\n  - {{step: start, tool: {{kind: noop}}}}\n"
OTHER = "metadata: {name: other}\nworkflow:\n  - {step: start, tool: {kind: noop}}\n"
AT = 1_767_323_045_000_000


class Facts(NamedTuple):
    """What tenant acme has."""

    execution: str
    run: str
    command: Command
    sha256: str
    key_id: str

    @property
    def ref(self) -> str:
        return f"noetl://execution/{self.execution}/result/start/{self.sha256}"


class Site(NamedTuple):
    services: Services
    facts: Facts

    def of(self, tenant: str, project: str = "") -> Workspace:
        principal = Principal(f"{tenant}-root", tenant, frozenset(ROLES), project, subject=f"key-{tenant}")
        return Workspace(self.services, principal)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    settings = Settings({"home": str(tmp_path / "home"), "scope.tenant": "installation"})
    async with embedded(settings) as runtime:
        services = _services(runtime, settings)
        yield Site(services, await _filled(services))


def _services(embedded_runtime: Embedded, settings: Settings) -> Services:
    engine, clock = embedded_runtime.engine, embedded_runtime.engine.clock

    async def ready() -> str:
        return ""

    async def nobody(_: Mapping[str, str], __: str) -> Principal:
        raise InvariantBroken("no request is sent here")

    async def doctor(boundary: Boundary) -> Diagnosis:
        return Diagnosis(boundary.reach.tenant, 1, AT, [])

    return Services(
        settings=settings,
        api=embedded_runtime.api.within,
        control=lambda within: ScopedControl(embedded_runtime.control, engine.store, clock, within),
        ingest=EngineIngest(engine),
        runs=lambda within: EngineRuns(engine, embedded_runtime.api.within(within), within, new_cursors()),
        results=embedded_runtime.results,
        authenticate=nobody,
        ready=ready,
        clock=clock,
        book=engine.store,
        audit=Audit(engine.store, clock, settings),
        doctor=doctor,
        schedules=embedded_runtime.schedules,
        pools=embedded_runtime.pools,
        vault=choose_vault(settings),
    )


async def _filled(services: Services) -> Facts:
    acme = Site(services, None).of("acme")  # type: ignore[arg-type]  # they come from here
    started = await acme.api.execute(ExecuteRequest(FLOW))
    (command,) = await acme.control.claim(WorkerInfo("w", ("noop",)), 1)
    writer = acme.results.writer("acme")
    await writer.write(SECRET.encode())
    content = await writer.commit()
    await acme.schedules.add(NewSchedule(SECRET, "0 6 * * *", f"{SECRET}/flow"))
    made = await acme.keys.create(NewKey(SECRET, ("viewer",)))
    await acme.credentials.put(SECRET, "hidden")
    await acme.control.write_logs([LogLine(command.execution_id, AT, "start", 1, "start", 1, 1, "stdout", SECRET)])
    return Facts(started.execution_id, started.run_id, command, content.sha256, made.about.key_id)


#: What became of a call with another tenant's ids: it is not there, it is not the caller's to change, or the answer has
#: nothing of that tenant.
HIDDEN, REFUSED, EMPTY = "hidden", "refused", "empty"
Case = tuple[str, Callable[[Workspace, Facts], Any]]


async def _exported(at: Workspace, facts: Facts) -> bytes:
    return b"".join([chunk async for chunk in at.api.export(facts.execution)])


async def _import_other(at: Workspace, _: Facts) -> Any:
    try:
        return await at.api.import_run(BytesIO(b"no archive"))
    except ArclogError as problem:
        return str(problem)


async def _all(items: Any) -> list[Any]:
    return [item async for item in items]


async def _lost(at: Workspace, has: Facts) -> str:
    lost = await at.control.heartbeat("w", [(has.command.command_id, has.command.fence)])
    assert lost == [has.command.command_id], "the lease of another tenant's command was extended"
    return ""


# fmt: off
CASES: dict[str, Case] = {
    "api.execute": (HIDDEN, lambda at, _: at.api.execute(ExecuteRequest(path=f"{SECRET}/flow"))),
    "api.wait": (HIDDEN, lambda at, has: at.api.wait(has.execution, timeout_s=0)),
    "api.ended": (HIDDEN, lambda at, has: at.api.ended(has.execution, timeout_s=0)),
    "api.status": (HIDDEN, lambda at, has: at.api.status(has.execution)),
    "api.summary": (HIDDEN, lambda at, has: at.api.summary(has.execution)),
    "api.list": (EMPTY, lambda at, _: at.api.list()),
    "api.find": (EMPTY, lambda at, _: at.api.find(RunQuery())),
    "api.activity": (EMPTY, lambda at, _: at.api.activity()),
    "api.failing": (EMPTY, lambda at, _: at.api.failing()),
    "api.stuck": (EMPTY, lambda at, _: at.api.stuck()),
    "api.leases": (EMPTY, lambda at, _: at.api.leases()),
    "api.approvals": (EMPTY, lambda at, _: at.api.approvals()),
    "api.events": (HIDDEN, lambda at, has: at.api.events(has.execution)),
    "api.entity_events": (HIDDEN, lambda at, has: at.api.entity_events(has.execution, "step")),
    "api.search": (EMPTY, lambda at, _: at.api.search()),
    "api.logs": (HIDDEN, lambda at, has: at.api.logs(has.execution)),
    "api.results": (HIDDEN, lambda at, has: at.api.results(has.execution)),
    "api.result": (HIDDEN, lambda at, has: at.api.result(has.ref)),
    "api.content": (HIDDEN, lambda at, has: _all(at.api.content(has.ref))),
    "api.collect": (EMPTY, lambda at, _: at.api.collect(dry_run=True)),
    "api.why": (HIDDEN, lambda at, has: at.api.why(has.execution)),
    "api.state": (HIDDEN, lambda at, has: at.api.state(has.execution)),
    "api.signal": (HIDDEN, lambda at, has: at.api.signal(has.execution, SignalRequest("CANCEL", reason="mine"))),
    "api.fork": (HIDDEN, lambda at, has: at.api.fork(has.execution, ForkRequest(at=1))),
    "api.replay": (HIDDEN, lambda at, has: at.api.replay(has.execution)),
    "api.diff": (HIDDEN, lambda at, has: at.api.diff(has.execution, has.execution)),
    "api.simulate": (HIDDEN, lambda at, has: at.api.simulate(SimulateRequest(OTHER, runs=[has.execution]))),
    "api.export": (HIDDEN, _exported),
    "api.import_run": (EMPTY, _import_other),
    "api.lineage": (HIDDEN, lambda at, has: at.api.lineage(has.execution)),
    "api.trace": (HIDDEN, lambda at, has: at.api.trace(has.execution, "result")),
    "api.stats": (HIDDEN, lambda at, _: at.api.stats(f"{SECRET}/flow")),
    "api.pausing": (HIDDEN, lambda at, has: at.api.pausing(has.execution)),
    "api.cancel": (HIDDEN, lambda at, has: at.api.cancel(has.execution, "mine")),
    "api.source": (HIDDEN, lambda at, has: at.api.source(has.execution)),
    "api.graph": (HIDDEN, lambda at, has: at.api.graph(has.execution)),
    "api.register": (EMPTY, lambda at, _: at.api.register(RegisterRequest(OTHER))),
    "api.catalog": (EMPTY, lambda at, _: at.api.catalog()),
    "api.versions": (HIDDEN, lambda at, _: at.api.versions(f"{SECRET}/flow")),
    "api.registered": (HIDDEN, lambda at, _: at.api.registered(f"{SECRET}/flow")),
    "api.difference": (HIDDEN, lambda at, _: at.api.difference(f"{SECRET}/flow", 1)),
    "api.archive": (HIDDEN, lambda at, _: at.api.archive(f"{SECRET}/flow")),
    "runs.start": (HIDDEN, lambda at, _: at.runs.start(StartRun(plan_id=f"{SECRET}/flow"))),
    "runs.status": (HIDDEN, lambda at, has: at.runs.status(has.run)),
    "runs.cancel": (HIDDEN, lambda at, has: at.runs.cancel(has.run, "mine")),
    "runs.signal": (HIDDEN, lambda at, has: at.runs.signal(has.run, RunSignal("PAUSE", has.run))),
    "runs.events": (HIDDEN, lambda at, has: at.runs.events(has.run)),
    "schedules.add": (HIDDEN, lambda at, _: at.schedules.add(NewSchedule("mine", "0 6 * * *", f"{SECRET}/flow"))),
    "schedules.list": (EMPTY, lambda at, _: at.schedules.list()),
    "schedules.upcoming": (EMPTY, lambda at, _: at.schedules.upcoming()),
    "schedules.show": (HIDDEN, lambda at, _: at.schedules.show(SECRET)),
    "schedules.pause": (HIDDEN, lambda at, _: at.schedules.pause(SECRET)),
    "schedules.resume": (HIDDEN, lambda at, _: at.schedules.resume(SECRET)),
    "schedules.remove": (HIDDEN, lambda at, _: at.schedules.remove(SECRET)),
    "schedules.backfill": (HIDDEN, lambda at, _: at.schedules.backfill(SECRET, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")),
    "take_event": (HIDDEN, lambda at, has: at.take_event({"execution_id": has.execution, "event_type": "batch.completed"})),
    "take_batch": (HIDDEN, lambda at, has: _first(at.take_batch({"execution_id": has.execution, "events": [{"event_type": "batch.completed"}]}))),
    "check_playbook": (EMPTY, lambda at, _: at.check_playbook(OTHER, "x.yaml")),
    "control.claim": (EMPTY, lambda at, _: at.control.claim(WorkerInfo("w", ("noop",)), 10)),
    "control.report": (HIDDEN, lambda at, has: at.control.report(_report(has))),
    "control.heartbeat": (EMPTY, _lost),
    "control.give_back": (HIDDEN, lambda at, has: at.control.give_back("w", int(has.execution), has.command.command_id, has.command.fence)),
    "control.revoked": (EMPTY, lambda at, has: at.control.revoked("w", 0.0, [(int(has.execution), has.command.command_id, 1)])),
    "control.program": (HIDDEN, lambda at, has: at.control.program(has.command.plan)),
    "control.loop_results": (HIDDEN, lambda at, has: at.control.loop_results(int(has.execution), "start", 1, 0, 10)),
    "control.write_logs": (HIDDEN, lambda at, has: at.control.write_logs([LogLine(int(has.execution), AT, "start", 1, "start", 1, 1, "stdout", "mine")])),
    "control.check_holder": (HIDDEN, lambda at, has: at.control.check_holder("w", int(has.execution), has.command.command_id)),
    "wire_commands": (EMPTY, lambda at, _: at.wire_commands([])),
    "serves_all_tenants": (EMPTY, lambda at, _: _done(at.serves_all_tenants)),
    "results.writer": (HIDDEN, lambda at, _: _done(at.results.writer("acme"))),
    "results.chunks": (HIDDEN, lambda at, has: _all(at.results.chunks("acme", has.sha256))),
    "results.items": (HIDDEN, lambda at, has: at.results.items("acme", has.sha256, 0, 1)),
    "results.find": (HIDDEN, lambda at, has: at.results.find("acme", has.sha256)),
    "results.remove": (HIDDEN, lambda at, has: at.results.remove("acme", has.sha256)),
    "results.all": (EMPTY, lambda at, _: _all(at.results.all())),
    "results.leftovers": (EMPTY, lambda at, _: at.results.leftovers(0)),
    "results.close": (EMPTY, lambda at, _: at.results.close()),
    "secrets.find": (HIDDEN, lambda at, _: at.secrets.find(SECRET, "acme/default/local")),
    "pools.pools": (EMPTY, lambda at, _: at.pools.pools()),
    "pools.set_limit": (REFUSED, lambda at, _: at.pools.set_limit("default", "acme", 0)),
    "pools.remove_limit": (REFUSED, lambda at, _: at.pools.remove_limit("default", "acme")),
    "pools.scale": (EMPTY, lambda at, _: at.pools.scale("default")),
    "pools.resources": (EMPTY, lambda at, _: at.pools.resources()),
    "pools.set_resource": (REFUSED, lambda at, _: at.pools.set_resource("api", NewResource("1/s"))),
    "pools.remove_resource": (REFUSED, lambda at, _: at.pools.remove_resource("api")),
    "pools.workers": (EMPTY, lambda at, _: at.pools.workers()),
    "pools.drain": (REFUSED, lambda at, _: at.pools.drain("w@acme/key-acme")),
    "keys.create": (EMPTY, lambda at, _: at.keys.create(NewKey("mine", ("viewer",)))),
    "keys.list": (EMPTY, lambda at, _: at.keys.list()),
    "keys.revoke": (HIDDEN, lambda at, has: at.keys.revoke(has.key_id)),
    "audit.page": (EMPTY, lambda at, _: at.audit.page()),
    "credentials.put": (HIDDEN, lambda at, _: at.credentials.put(SECRET, "mine", "acme")),
    "credentials.list": (EMPTY, lambda at, _: at.credentials.list()),
    "credentials.remove": (HIDDEN, lambda at, _: at.credentials.remove(SECRET, "acme")),
    "diagnosis": (EMPTY, lambda at, _: at.diagnosis()),
}
# fmt: on


async def _done(value: Any) -> Any:
    return value


async def _first(answers: Awaitable[list[Any]]) -> Any:
    (answer,) = await answers
    if isinstance(answer, Exception):
        raise answer
    return answer


def _report(has: Facts) -> Report:
    command = has.command
    event = Event("step.started", AT, step="start", run=1)
    return Report("w", command.execution_id, command.command_id, command.fence, 1, [event])


def _methods() -> set[str]:
    """Everything that a workspace offers: its own methods, and those of the ports that its properties are."""
    names: set[str] = set()
    for name, member in vars(Workspace).items():
        if name.startswith("_"):
            continue
        if not isinstance(member, property):
            names.add(name)
            continue
        port = get_type_hints(member.fget)["return"]
        parts = {part for part, of in inspect.getmembers(port, inspect.isfunction) if not part.startswith("_")}
        names |= {f"{name}.{part}" for part in parts} or {name}
    return names


def test_every_method_of_a_workspace_has_a_case() -> None:
    assert _methods() == set(CASES)


async def test_every_method_keeps_another_tenants_things_out_of_sight(site: Site) -> None:
    globex, facts = site.of("globex"), site.facts
    acme = site.of("acme")
    before = await _state(acme, facts)
    wrong: list[str] = []
    for name, (expected, call) in CASES.items():
        try:
            answer = await _called(call, globex, facts)
        except NotFound as problem:
            outcome, shown = HIDDEN, str(problem)
        except (NotAllowed, NotHolder):
            outcome, shown = REFUSED, ""
        else:
            outcome, shown = EMPTY, _text(answer)
        if outcome != expected:
            wrong.append(f"{name}: {outcome}, not {expected} ({shown[:200]})")
        elif expected == EMPTY and any(word in shown for word in (SECRET, "acme", facts.execution, facts.run)):
            wrong.append(f"{name} shows {shown[:400]}")
    assert wrong == []
    assert await _state(acme, facts) == before


async def _called(call: Callable[[Workspace, Facts], Any], at: Workspace, facts: Facts) -> Any:
    return await call(at, facts)


def _text(answer: Any) -> str:
    return msgspec.json.encode(answer, enc_hook=str).decode()


async def _state(acme: Workspace, facts: Facts) -> str:
    """What acme has, as it sees it."""
    held = await acme.control.heartbeat("w", [(facts.command.command_id, facts.command.fence)])
    return _text(
        [
            held,
            (await acme.api.status(facts.execution)).state,
            len(await acme.api.events(facts.execution)),
            len(await acme.api.logs(facts.execution)),
            await acme.schedules.list(),
            await acme.keys.list(),
            await acme.credentials.list(),
            await acme.api.catalog(),
            await acme.results.find("acme", facts.sha256),
        ]
    )


# -- within a tenant ---------------------------------------------------------------------------------------------------


async def test_upcoming_schedules_of_another_project_are_not_there(site: Site) -> None:
    bound = site.of("acme", project="shop")
    assert await bound.schedules.upcoming() == await bound.schedules.list() == []
    assert [due.name for due in await site.of("acme").schedules.upcoming()] == [SECRET]


async def test_a_playbook_is_not_compared_with_one_of_another_tenant(site: Site) -> None:
    globex = site.of("globex")
    await globex.api.execute(ExecuteRequest("metadata: {name: own}\nworkflow: [{step: a, tool: {kind: noop}}]\n"))
    assert (await globex.api.difference("own", 1, other="own")).diff == ""
    with pytest.raises(NotFound):
        await globex.api.difference("own", 1, other=f"{SECRET}/flow")


def test_a_principal_without_a_tenant_has_no_boundary() -> None:
    with pytest.raises(InvariantBroken, match="no tenant"):
        Boundary.of(Principal("nobody", "", frozenset(ROLES)), Settings())


@pytest.mark.parametrize(
    ("reach", "scope", "sees"),
    [
        (Scope("a", "", ""), Scope("a", "p", "e"), True),
        (Scope("a", "", ""), Scope("b", "p", "e"), False),
        (Scope("a", "p", ""), Scope("a", "p", "e"), True),
        (Scope("a", "p", ""), Scope("a", "q", "e"), False),
        (Scope("a", "p", "e"), Scope("a", "p", "f"), False),
        (Scope("a", "p", ""), Scope("a", "", ""), False),
    ],
)
def test_what_a_boundary_sees(reach: Scope, scope: Scope, sees: bool) -> None:
    boundary = Boundary(Scope("a", "p", "e"), reach)
    assert boundary.sees(scope) is sees
