"""Runs as files: what comes in is what went out, and a damaged file names its part."""

from __future__ import annotations

import asyncio
import hashlib
import json
import zipfile
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

import pytest

from arclog.core.boundary.inputs import Continue
from arclog.engine.history import archive as portable
from arclog.model.errors import Conflict, NotAllowed, RequestRejected, ResultUnavailable
from arclog.plan import net
from arclog.ports.storage.store import Scope
from arclog.ports.views.api import ForkRequest, SignalRequest
from arclog.ports.views.history import SimulateRequest
from arclog.ports.views.overview import ListedOrigin
from arclog.testing.harness import World

TEXT = """
metadata: {name: parts}
workflow:
  - step: start
    tool: {kind: act, returns: {rows: [1, 2]}, spec: {result: {store: always}}}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ start.rows }}", iterator: n, spec: {mode: parallel}}
    tool: {kind: act, returns: "{{ iter.n }}"}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: noop, data: "{{ each.results }}"}}
"""
ELSEWHERE = Scope("default", "project", "test")


async def exported(world: World) -> bytes:
    api = world.current_life.api
    return b"".join([chunk async for chunk in api.export(str(world.execution_id))])


async def imported(body: bytes, destination: World) -> Any:
    life = destination.life or destination.begin_life()
    return await portable.read_run(life.engine, destination.results, BytesIO(body), ELSEWHERE)


def with_world(work: Callable[[World, World, bytes], Any], text: str = TEXT) -> None:
    async def go() -> None:
        async with World(text) as world, World(text) as other_world:
            await world.run()
            await work(world, other_world, await exported(world))

    asyncio.run(go())


def changed(body: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    target = BytesIO()
    with zipfile.ZipFile(BytesIO(body)) as old, zipfile.ZipFile(target, "w") as new:
        for member in old.namelist():
            new.writestr(member, change(old.read(member)) if member == name else old.read(member))
    return target.getvalue()


def test_an_imported_run_has_the_ids_the_events_and_the_results_that_it_had() -> None:
    async def work(source: World, destination: World, body: bytes) -> None:
        imported_run = await imported(body, destination)
        assert (imported_run.execution_id, imported_run.created) == (str(source.execution_id), True)
        mine = [(entry.seq, entry.event_id, entry.event) for entry in await source.stored()]
        theirs = await destination.store.events(source.execution_id, limit=10_000)
        assert [(their.seq, their.event_id, their.event) for their in theirs] == mine
        api, number = destination.current_life.api, imported_run.execution_id
        assert (await api.summary(number)).result == [1, 2]
        assert (await api.replay(number)).ok
        (stored,) = await api.results(number)
        assert b"".join([chunk async for chunk in api.content(stored.ref)]) == b'{"rows":[1,2]}'
        assert (await api.simulate(SimulateRequest(TEXT, runs=[number]))).verdicts == {"same": 1}
        assert not (await imported(body, destination)).created
        again = b"".join([chunk async for chunk in api.export(number)])
        with zipfile.ZipFile(BytesIO(again)) as archive, zipfile.ZipFile(BytesIO(body)) as first:
            manifests = [json.loads(exported.read("manifest.json")) for exported in (archive, first)]
        assert manifests[0]["parts"] == manifests[1]["parts"]
        assert manifests[0]["path"] == "parts"

    with_world(work)


def test_an_imported_run_is_read_only_and_can_be_forked() -> None:
    async def work(source: World, destination: World, body: bytes) -> None:
        number = (await imported(body, destination)).execution_id
        head = len(await source.stored())
        answer = await destination.current_life.api.signal(number, SignalRequest("CANCEL", reason="no"))
        assert not answer.accepted
        assert answer.message == "the run was imported and is read-only; fork it to continue"
        assert (await destination.current_life.engine.put(int(number), Continue())).refused is not None
        assert len(await destination.store.events(int(number), limit=10_000)) == head
        forked = await destination.current_life.api.fork(number, ForkRequest(step="each"))
        log = await destination.store.events(int(forked.execution_id), limit=10)
        assert log[0].event.payload["scope"] == "default/project/test"
        destination.current_life.start_worker("w")
        assert await destination.current_life.api.ended(forked.execution_id, timeout_s=600.0)
        assert (await destination.current_life.api.summary(forked.execution_id)).result == [1, 2]

    with_world(work)


def test_a_run_that_was_exported_before_its_end_explains_that_nothing_continues_it() -> None:
    text = "metadata: {name: held}\nworkflow: [{step: a, tool: {kind: wait, signal: go}}]\n"

    async def go() -> None:
        async with World(text) as source, World(text) as destination:
            await source.start()
            number = (await imported(await exported(source), destination)).execution_id
            api, head = destination.current_life.api, len(await source.stored())
            why = await api.why(number)
            assert why.summary.startswith("the run was imported and is read-only; when it was exported: ")
            assert why.next == [f"arclog fork {number} --at {head}"]
            with pytest.raises(Conflict, match=f"exported in this state; fork it after event {head}"):
                await api.fork(number, ForkRequest(failed=True))

    asyncio.run(go())


@pytest.mark.parametrize("part", ["log.jsonl", "plan.json", "playbook.yaml", "results/"])
def test_a_file_without_one_of_its_parts_is_damaged_and_names_it(part: str) -> None:
    async def work(_: World, destination: World, body: bytes) -> None:
        target = BytesIO()
        with zipfile.ZipFile(BytesIO(body)) as old, zipfile.ZipFile(target, "w") as new:
            (gone,) = [name for name in old.namelist() if name.startswith(part)]
            for name in old.namelist():
                if name != gone:
                    new.writestr(name, old.read(name))
        with pytest.raises(RequestRejected, match=f"the file is damaged: part {gone} is missing; export the run again"):
            await imported(target.getvalue(), destination)

    with_world(work)


def test_a_run_whose_id_is_in_use_elsewhere_in_the_store_cannot_be_imported() -> None:
    async def work(_: World, destination: World, body: bytes) -> None:
        await imported(body, destination)
        with pytest.raises(Conflict, match="another run of this store has the id of the run in the file"):
            await portable.read_run(
                destination.current_life.engine, destination.results, BytesIO(body), Scope("other", "project", "test")
            )

    with_world(work)


def _replaced(old: str, new: str, part: bytes) -> bytes:
    return part.replace(old.encode(), new.encode(), 1)


def test_an_imported_retry_keeps_its_origin_and_one_that_is_none_is_refused() -> None:
    async def work(source: World, destination: World, body: bytes) -> None:
        forked = await source.current_life.api.fork(str(source.execution_id), ForkRequest(step="each"))
        body = b"".join([chunk async for chunk in source.current_life.api.export(forked.execution_id)])
        seq, events = forked.origin.seq, forked.origin.events
        for old, new in (
            (f'"execution_id":"{source.execution_id}","seq":{seq}', f'"execution_id":"me","seq":{seq}'),
            (f'"seq":{seq},"how"', '"seq":0,"how"'),
            (f'"seq":{seq},"how"', f'"seq":{1 << 80},"how"'),
            (f'"seq":{seq},"how"', '"seq":"x","how"'),
            ('"how":"retry"', '"how":"dream"'),
            (f'"events":{events}', '"events":-1'),
        ):
            with pytest.raises(RequestRejected, match="event 1 of the log in the file has no valid origin"):
                await imported(resealed(body, "log.jsonl", partial(_replaced, old, new)), destination)
        assert await destination.store.executions() == []
        await imported(body, destination)
        (run,) = await destination.current_life.api.list(origin=str(source.execution_id))
        assert run.origin == ListedOrigin(str(source.execution_id), seq, "retry")
        assert (await destination.current_life.api.summary(forked.execution_id)).origin == forked.origin

    with_world(work)


def test_a_run_that_goes_on_is_exported_as_it_is_and_nobody_goes_on_with_it_elsewhere() -> None:
    async def go() -> None:
        text = "metadata: {name: waits}\nworkflow: [{step: start, tool: {kind: wait, for_s: 3600}}]\n"
        async with World(text) as world, World(text) as other_world:
            await world.start()
            world.current_life.start_worker("w")
            await world.current_life.api.wait(str(world.execution_id), after=6)
            number = (await imported(await exported(world), other_world)).execution_id
            status = await other_world.current_life.api.status(number)
            assert status.state == "RUNNING"
            assert (await other_world.store.idle(1 << 62)).records == []
            assert await other_world.store.next_due() is None

    asyncio.run(go())


@pytest.mark.parametrize("name", ["log.jsonl", "plan.json", "playbook.yaml", "manifest.json"])
def test_a_damaged_part_is_named_and_nothing_is_taken_in(name: str) -> None:
    async def work(source: World, destination: World, body: bytes) -> None:
        for damage in (lambda part: part[:-2], lambda part: part.replace(b"a", b"b", 1), lambda part: part + b" "):
            with pytest.raises(RequestRejected, match=f"part {name} does not match"):
                await imported(changed(body, name, damage), destination)
        assert await destination.store.executions() == []
        assert [result async for result in destination.results.all()] == []

    with_world(work)


def test_so_is_a_damaged_result_and_any_flipped_byte_is_found() -> None:
    async def work(source: World, destination: World, body: bytes) -> None:
        with zipfile.ZipFile(BytesIO(body)) as archive:
            (result,) = (name for name in archive.namelist() if name.startswith("results/"))
            names = archive.namelist()
        with pytest.raises(RequestRejected, match=f"part {result} does not match"):
            await imported(changed(body, result, lambda part: b"[" + part[1:]), destination)
        for at in range(0, len(body), 61):
            flipped = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
            try:
                imported_run = await imported(flipped, destination)
            except RequestRejected:
                assert await destination.store.executions() == []
            else:  # a byte that says nothing: a date, a flag
                assert imported_run.events == len(await source.stored())
                break
        assert len(names) == 6

    with_world(work)


def test_a_newer_format_and_another_state_of_the_run_are_refused() -> None:
    async def work(source: World, destination: World, body: bytes) -> None:
        def newer(manifest: bytes) -> bytes:
            return manifest.replace(b'"format": 1', b'"format": 9')

        text = newer(zipfile.ZipFile(BytesIO(body)).read("manifest.json"))
        sealed = changed(
            changed(body, "manifest.json", newer),
            "manifest.sha256",
            lambda _: hashlib.sha256(text).hexdigest().encode(),
        )
        with pytest.raises(RequestRejected, match="newer release"):
            await imported(sealed, destination)
        with pytest.raises(Conflict, match="in this store already"):
            await portable.read_run(
                source.current_life.engine, source.results, BytesIO(body), Scope("tenant", "project", "test")
            )

    with_world(work)


def resealed(body: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """The file with another part and checksums that fit."""
    with zipfile.ZipFile(BytesIO(body)) as archive:
        part = change(archive.read(name))
        manifest = json.loads(archive.read("manifest.json"))
    for listed in manifest["parts"]:
        if listed["name"] == name:
            listed |= {"bytes": len(part), "sha256": hashlib.sha256(part).hexdigest()}
    manifest["arclog"] = "99.1"
    if name == "plan.json":
        manifest["plan"] = net.digest(part)
    text = json.dumps(manifest).encode()
    body = changed(changed(body, name, lambda _: part), "manifest.json", lambda _: text)
    return changed(body, "manifest.sha256", lambda _: hashlib.sha256(text).hexdigest().encode())


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("log.jsonl", b'"t":"step.done"', b'"t":"step.vanished"', "step.vanished which this one does not know"),
        ("log.jsonl", b'"t":"step.done"', b'"t":"step.done","v":9', "step.done in version 9"),
        ("log.jsonl", b'"t":"step.done"', b'"t":"step.vanished","x":true', "step.vanished"),
        ("plan.json", b'{"name":"parts"', b'{"format":99,"name":"parts"', "has format 99"),
    ],
)
def test_a_log_and_a_plan_of_a_newer_release_are_refused(name: str, old: bytes, new: bytes, said: str) -> None:
    async def work(source: World, destination: World, body: bytes) -> None:
        with pytest.raises(RequestRejected) as refused:
            await imported(resealed(body, name, lambda part: part.replace(old, new, 1)), destination)
        text = str(refused.value)
        assert "written by a newer release (arclog 99.1; this one is " in text
        assert said in text
        assert text.endswith("update arclog to import it")
        assert await destination.store.executions() == []
        assert [result async for result in destination.results.all()] == []

    with_world(work)


# --- files that were made to do harm: every checksum in them is right ---------------------------------------------------------


def sealed(
    body: bytes, contents: dict[str, bytes] | None = None, compression: int = zipfile.ZIP_DEFLATED, **changes: Any
) -> bytes:
    """An archive with other parts and another manifest, and checksums to match."""
    with zipfile.ZipFile(BytesIO(body)) as old:
        manifest = json.loads(old.read("manifest.json"))
        held = {part["name"]: old.read(part["name"]) for part in manifest["parts"]} | (contents or {})
    manifest["parts"] = [
        {"name": name, "bytes": len(part), "sha256": hashlib.sha256(part).hexdigest()} for name, part in held.items()
    ]
    manifest |= changes
    text = json.dumps(manifest).encode()
    target = BytesIO()
    with zipfile.ZipFile(target, "w", compression) as new:
        for name, part in held.items():
            new.writestr(name, part)
        new.writestr("manifest.json", text)
        new.writestr("manifest.sha256", hashlib.sha256(text).hexdigest())
    return target.getvalue()


def with_event(body: bytes, payload: str, event_id: int | None = None) -> bytes:
    """The log with one more field in its second event."""
    with zipfile.ZipFile(BytesIO(body)) as archive:
        first, second, *rest = archive.read("log.jsonl").splitlines()
    line = json.loads(second)
    line[0] = line[0] if event_id is None else event_id
    text = json.dumps(line).replace('"ca": 1}', '"ca": 1, "p": {"x": ' + payload + "}}", 1)
    return b"\n".join([first, text.encode(), *rest, b""])


def with_limits(body: bytes, **limits: int) -> bytes:
    """The plan with limits that no compiler gave it, and all names to match."""
    return with_plan(body, lambda old: {"limits": {**old.get("limits", {}), **limits}})


def with_plan(body: bytes, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
    """The plan with parts that no compiler gave it, and all names to match."""
    with zipfile.ZipFile(BytesIO(body)) as archive:
        old = json.loads(archive.read("plan.json"))
        log = archive.read("log.jsonl").decode()
        name = json.loads(archive.read("manifest.json"))["plan"]
    plan = json.dumps({**old, **change(old)}).encode()
    digest = hashlib.sha256(plan).hexdigest()
    return sealed(body, {"plan.json": plan, "log.jsonl": log.replace(name, digest).encode()}, plan=digest)


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "a runId that is none": lambda body: sealed(body, run_id="../x"),
    "a name that a terminal would act on": lambda body: sealed(body, name="\x1b]0;a\x07"),
    "a path with a line end": lambda body: sealed(body, path="a\nb"),
    "templates without a bound": lambda body: with_limits(body, max_expr_work=1 << 60),
    "templates of any size": lambda body: with_limits(body, max_expr_bytes=1 << 60),
    "events of any size": lambda body: with_limits(body, max_payload_bytes=1 << 40),
    "a run without an end": lambda body: with_limits(body, max_step_runs=1 << 60),
    "every step many times": lambda body: with_plan(body, lambda old: {"steps": old["steps"] * 3}),
    "an id that is not a number": lambda body: sealed(body, execution_id="../../x"),
    "an id that is too large": lambda body: sealed(body, execution_id="9" * 30),
    "a time that is none": lambda body: sealed(body, created_at=1 << 70),
    "a size below zero": lambda body: sealed(body, parts=[{"name": "log.jsonl", "bytes": -1, "sha256": ""}]),
    "a manifest of lists": lambda body: sealed(body, parts=[[]] * 1000),
    "a manifest that is deep": lambda body: sealed(body, results=json.loads("[" * 500 + "]" * 500)),
    "a log that is small as text": lambda body: sealed(
        body, {"log.jsonl": with_event(body, "[" + "[]," * 20_000 + "1]")}
    ),
    "a log that is deep": lambda body: sealed(body, {"log.jsonl": with_event(body, "[" * 9_000 + "]" * 9_000)}),
    "a log of one line": lambda body: sealed(body, {"log.jsonl": b"[" + b"0," * 2_000_000}),
    "an event id that is too large": lambda body: sealed(body, {"log.jsonl": with_event(body, "1", 1 << 65)}),
    "an event id below zero": lambda body: sealed(body, {"log.jsonl": with_event(body, "1", -5)}),
    "no log": lambda body: sealed(body, {"log.jsonl": b""}),
    "a plan of another run": lambda body: sealed(body, {"plan.json": b"{}"}),
    "a plan that is deep": lambda body: sealed(
        body, {"plan.json": b"[" * 50_000}, plan=hashlib.sha256(b"[" * 50_000).hexdigest()
    ),
    "a plan that is large": lambda body: sealed(body, {"plan.json": b" " * 200_000}),
    "a compression that takes memory": lambda body: sealed(body, compression=zipfile.ZIP_LZMA),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_was_made_to_do_harm_is_refused(name: str) -> None:
    async def work(_: World, destination: World, body: bytes) -> None:
        life = destination.life or destination.begin_life()
        life.engine.settings = life.engine.settings.replaced(imports__max_decoded_bytes=1024 * 1024)
        with pytest.raises(RequestRejected):
            await imported(HOSTILE[name](body), destination)
        assert await destination.store.executions() == []

    with_world(work)


def test_limits_that_this_machine_allows_are_taken() -> None:
    """What the plans above are refused for is nothing else than their limits."""

    async def work(_: World, destination: World, body: bytes) -> None:
        assert (await imported(with_limits(body, max_expr_work=10_000), destination)).created

    with_world(work)


def test_an_id_of_a_moment_to_come_is_refused() -> None:
    """A run that gets it here, then, could not be started."""

    async def work(source: World, destination: World, body: bytes) -> None:
        day = (86_400_000 << 22) + source.execution_id
        with pytest.raises(RequestRejected, match="a moment that has not come"):
            await imported(sealed(body, execution_id=str(day)), destination)
        assert (await imported(sealed(body, execution_id=str(source.execution_id - 1)), destination)).created

    with_world(work, "metadata: {name: a}\nworkflow: [{step: start, tool: {kind: noop}}]")


def test_a_run_id_that_another_run_has_is_refused() -> None:
    """Else whoever asks for the other run by its runId would be sent to this one."""

    async def work(source: World, destination: World, body: bytes) -> None:
        await destination.start()
        record = await destination.store.execution(destination.execution_id)
        assert record is not None
        with pytest.raises(Conflict, match="another run has the runId"):
            await imported(sealed(body, run_id=record.new.run_id, execution_id="1000"), destination)

    with_world(work)


def test_results_that_were_collected_are_told_on_import_and_wherever_they_are_read() -> None:
    async def go() -> None:
        async with World(TEXT) as world, World(TEXT) as other_world:
            await world.run()
            (stored,) = await world.store.results(world.execution_id)
            assert await world.store.remove_results([stored], world.clock.now()) == 1
            body = await exported(world)
            for created in (True, False):
                imported_run = await imported(body, other_world)
                assert (imported_run.created, imported_run.results, imported_run.missing) == (
                    created,
                    0,
                    [stored.name],
                )
            api, number = other_world.current_life.api, imported_run.execution_id
            (result,) = await api.results(number)
            assert result.removed_at is not None
            with pytest.raises(ResultUnavailable, match=r"was removed before run \d+ was exported"):
                _ = [chunk async for chunk in api.content(result.ref)]
            assert (await api.replay(number)).ok
            with pytest.raises(RequestRejected, match=r"needs were removed: start\.start_task"):
                await api.fork(number, ForkRequest(step="end"))
            forked = await api.fork(number, ForkRequest(step="start"))
            other_world.current_life.start_worker("w")
            assert await api.ended(forked.execution_id, timeout_s=600.0)
            assert (await api.summary(forked.execution_id)).result == [1, 2]

    asyncio.run(go())


def test_an_archive_with_too_many_parts_is_refused_before_its_directory_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(portable, "_MOST_ENTRIES", 50)
    target = BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for number in range(51):
            archive.writestr(str(number), b"")
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(RequestRejected, match="more than 50 parts"):
        portable.Archive(target, 1 << 20, 1 << 20)


def test_a_part_that_unpacks_to_more_than_it_says_is_refused() -> None:
    async def work(_: World, destination: World, body: bytes) -> None:
        bomb = sealed(body, {"playbook.yaml": bytes(50_000_000)})
        small = changed(bomb, "manifest.json", lambda text: text.replace(b'"bytes": 50000000', b'"bytes": 10'))
        with zipfile.ZipFile(BytesIO(small)) as archive:
            text = archive.read("manifest.json")
        again = changed(small, "manifest.sha256", lambda _: hashlib.sha256(text).hexdigest().encode())
        with pytest.raises(RequestRejected, match=r"part playbook\.yaml does not match"):
            await imported(again, destination)

    with_world(work)


def test_a_plan_with_kinds_that_the_caller_may_not_bring_is_refused() -> None:
    def refuse(plan: Any) -> None:
        raise NotAllowed(f"{plan.name} has kinds that are switched off")

    async def work(_: World, destination: World, body: bytes) -> None:
        life = destination.life or destination.begin_life()
        with pytest.raises(NotAllowed, match="parts has kinds"):
            await portable.read_run(life.engine, destination.results, BytesIO(body), ELSEWHERE, refuse)
        assert await destination.store.executions() == []

    with_world(work)
