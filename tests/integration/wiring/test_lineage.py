"""OpenLineage events of real runs, written to a file and posted to a real server."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arclog.engine.history.lineage import LineageSender
from arclog.model.config.settings import Settings
from arclog.model.errors import ServerUnavailable
from arclog.ports.views.api import ExecuteRequest, ForkRequest
from arclog.wiring.access import credentials_of
from arclog.wiring.embedded import Embedded, embedded
from arclog.wiring.senders.lineage import LineagePoster, lineage_sender
from tests.servers.postgres import Database
from tests.servers.web import ReceivedRequest, Web, Wire

SECRET = "hunter2-in-the-log"


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as web:
        web.answers("/data", json={"a": 1})
        yield web


def settings_of(folder: Path, **more: Any) -> Settings:
    values = {
        "home": str(folder / "home"),
        "http.allow_networks": "loopback",
        "lineage.allow_networks": "loopback",
        "object.file_root": str(folder),
        "bus.publish_lease_s": 15.0,
    }
    return Settings({**values, **{name.replace("__", "."): value for name, value in more.items()}})


def playbook(folder: Path, web: Web, url: str = "/data") -> str:
    database = folder / "a.db"
    if not database.exists():
        connection = sqlite3.connect(database)
        connection.execute("create table orders (id integer, n integer)")
        connection.commit()
        connection.close()
    return f"""
metadata: {{name: moves, path: flows/moves}}
workload: {{token: {SECRET}}}
workflow:
  - step: start
    tool:
      - {{name: fill, kind: sqlite, database: '{database}', command: "insert into orders (id, n) values (1, {{{{ workload.token }}}})"}}
      - {{name: sums, kind: sqlite, database: '{database}', command: "create table totals as select id, sum(n) as total from orders group by id"}}
      - {{name: lake, kind: duckdb, command: "select 1 as x"}}
      - name: out
        kind: transfer
        source: {{kind: sqlite, database: '{database}', query: "select id, total from totals"}}
        target: {{kind: csv, path: '{folder}/out.csv'}}
      - {{name: put, kind: object, action: put, url: 'file://{folder}/x.txt', content: hello}}
      - name: ask
        kind: http
        url: '{web.url(url)}?key={SECRET}'
        params: {{token: '{{{{ workload.token }}}}'}}
"""


async def ran(embedded_runtime: Embedded, text: str) -> str:
    await embedded_runtime.start_worker()
    started = await embedded_runtime.api.execute(ExecuteRequest(text))
    assert await embedded_runtime.api.ended(started.execution_id, timeout_s=60)
    return started.execution_id


def check_shape(event: dict[str, Any]) -> None:
    """What the OpenLineage schema requires of a run event and its facets."""
    assert event["eventType"] in ("START", "COMPLETE", "FAIL", "ABORT")
    assert event["schemaURL"] == "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
    assert event["eventTime"].endswith("Z")
    uuid.UUID(event["run"]["runId"])
    for part in (event["job"], *event["inputs"], *event["outputs"]):
        assert part["namespace"]
        assert part["name"]
    for part in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
        for kind in ("facets", "inputFacets", "outputFacets"):
            for facet in part.get(kind, {}).values():
                assert facet["_producer"] == event["producer"]
                assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")


async def test_tasks_name_the_data_that_they_read_and_write(tmp_path: Path, web: Web) -> None:
    async with embedded(settings_of(tmp_path)) as runtime:
        run = await ran(runtime, playbook(tmp_path, web))
        assert (await runtime.api.status(run)).state == "COMPLETED", await runtime.api.why(run)
        events = await runtime.api.lineage(run)
    for event in events:
        check_shape(event)
    assert SECRET not in json.dumps(events)
    ends = {event["job"]["name"]: event for event in events if event["eventType"] == "COMPLETE"}
    starts = {event["job"]["name"]: event for event in events if event["eventType"] == "START"}
    assert list(starts) == [
        "flows/moves",
        *(f"flows/moves.start.{task}" for task in ("fill", "sums", "lake", "out", "put", "ask")),
    ]
    assert {name: event["run"]["runId"] for name, event in starts.items()} == {
        name: event["run"]["runId"] for name, event in ends.items()
    }
    database, files = f"sqlite://{tmp_path}/a.db", "file"

    def data(task: str, side: str) -> list[tuple[str, str]]:
        return [(event["namespace"], event["name"]) for event in ends[f"flows/moves.start.{task}"][side]]

    assert (data("fill", "inputs"), data("fill", "outputs")) == ([], [(database, "main.orders")])
    assert (data("sums", "inputs"), data("sums", "outputs")) == (
        [(database, "main.orders")],
        [(database, "main.totals")],
    )
    assert (data("lake", "inputs"), data("lake", "outputs")) == ([], [])
    assert (data("out", "inputs"), data("out", "outputs")) == (
        [(database, "main.totals")],
        [(files, f"{tmp_path}/out.csv")],
    )
    assert (data("put", "inputs"), data("put", "outputs")) == ([], [(files, f"{tmp_path}/x.txt")])
    assert (data("ask", "inputs"), data("ask", "outputs")) == ([(web.url(""), "/data")], [])
    sums = ends["flows/moves.start.sums"]
    fields = sums["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert fields["total"]["inputFields"] == [{"namespace": database, "name": "main.orders", "field": "n"}]
    assert sums["run"]["facets"]["parent"]["run"]["runId"] == ends["flows/moves"]["run"]["runId"]
    assert sums["job"]["facets"]["sql"]["query"].startswith("create table totals")
    fill = ends["flows/moves.start.fill"]["outputs"][0]
    assert fill["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert ends["flows/moves.start.out"]["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 1


async def test_a_failure_is_told_and_a_retry_repeats_no_events(tmp_path: Path, web: Web) -> None:
    web.answers("/fails", status=404)
    async with embedded(settings_of(tmp_path)) as runtime:
        run = await ran(runtime, playbook(tmp_path, web, "/fails"))
        failed = [event for event in await runtime.api.lineage(run) if event["eventType"] == "FAIL"]
        assert [event["job"]["name"] for event in failed] == ["flows/moves.start.ask", "flows/moves"]
        assert all(event["run"]["facets"]["errorMessage"]["message"] for event in failed)
        web.answers("/fails", json={})
        again = await runtime.api.fork(run, ForkRequest(failed=True))
        assert await runtime.api.ended(again.execution_id, timeout_s=60)
        names = [event["job"]["name"] for event in await runtime.api.lineage(again.execution_id)]
        assert sorted(set(names)) == ["flows/moves", "flows/moves.start.ask"]


async def test_a_server_sends_each_ended_run_once_and_in_order(tmp_path: Path, web: Web) -> None:
    web.answers("/lineage", status=201)
    target = tmp_path / "events.jsonl"
    settings = settings_of(tmp_path, lineage__url=web.url("/lineage"), lineage__file=str(target))
    async with embedded(settings) as runtime:
        run = await ran(runtime, playbook(tmp_path, web))
        expected = await runtime.api.lineage(run)
    posted = [json.loads(request.body) for request in web.requests if request.path == "/lineage"]
    assert posted == expected
    assert [json.loads(line) for line in target.read_text().splitlines()] == expected
    assert SECRET not in target.read_text()
    async with embedded(settings) as runtime:  # it goes on where it was
        await runtime.start_worker()
    assert len([request for request in web.requests if request.path == "/lineage"]) == len(expected)


async def test_what_is_not_taken_is_sent_again_and_what_is_refused_is_left_out(tmp_path: Path, web: Web) -> None:
    answers = iter([201, 503, 503, 400])

    @web.route("/lineage")
    async def lineage(received: ReceivedRequest, wire: Wire) -> None:
        await wire.answer(next(answers, 201))

    settings = settings_of(tmp_path, lineage__url=web.url("/lineage"))
    async with embedded(settings_of(tmp_path)) as runtime:
        run = await ran(runtime, playbook(tmp_path, web))
        expected = [event["job"]["name"] for event in await runtime.api.lineage(run)]
        poster = LineagePoster(settings)
        sender: LineageSender = lineage_sender(runtime.engine, settings, "me", poster)
        with pytest.raises(Exception, match=r"lineage\.url answered 503"):
            await sender.publish()
        await sender.publish()
        await poster.close()
    posted = [json.loads(request.body)["job"]["name"] for request in web.requests if request.path == "/lineage"]
    assert posted == [*expected[:2], expected[1], *expected[1:]]  # the second one three times


async def test_an_address_that_is_not_allowed_is_not_reached(tmp_path: Path, web: Web) -> None:
    settings = settings_of(tmp_path, lineage__url=web.url("/lineage"), lineage__allow_networks="none")
    poster = LineagePoster(settings)
    problem, is_final = await poster.post(b"{}")
    assert "lineage.allow_networks" in problem
    assert not is_final
    assert web.requests == []
    await poster.close()


POSTGRES = """
metadata: {name: warehouse}
keychain: [{name: db, kind: postgres_credential, source: {env: WAREHOUSE}}]
workflow:
  - step: start
    tool:
      - {name: make, kind: postgres, auth: db, command: "create table orders (id int, amount int); create schema s"}
      - {name: fill, kind: postgres, auth: db, command: "insert into orders (id, amount) values (1, 20), (2, 22)"}
      - {name: sums, kind: postgres, auth: db, command: "create table s.totals as select sum(o.amount) as total from orders o"}
      - name: out
        kind: transfer
        auth: db
        source: {kind: postgres, query: "select id, amount from orders"}
        target: {kind: postgres, table: copies, create: true}
      - {name: fails, kind: postgres, dsn: "{{ keychain.db.dsn }}", command: "select 1 / 0 from orders", spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}
"""


async def test_tables_of_a_postgres_whose_address_is_a_secret(
    tmp_path: Path, postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAREHOUSE", postgres.dsn)
    async with embedded(settings_of(tmp_path)) as runtime:
        run = await ran(runtime, POSTGRES)
        assert (await runtime.api.status(run)).state == "COMPLETED", await runtime.api.why(run)
        events = await runtime.api.lineage(run)
        log = await runtime.api.events(run, limit=1000)
    for event in events:
        check_shape(event)
    for text in (json.dumps(events), json.dumps(log)):
        assert postgres.dsn not in text
        assert postgres.password not in text
        assert postgres.password.replace(" ", "%20") not in text
    space, name = f"postgres://{postgres.host}:{postgres.port}", postgres.dbname
    ends = {event["job"]["name"].rpartition(".")[2]: event for event in events if event["eventType"] != "START"}

    def data(task: str, side: str) -> list[tuple[str, str]]:
        return [(event["namespace"], event["name"]) for event in ends[task][side]]

    assert data("make", "outputs") == [(space, f"{name}.public.orders")]
    assert data("fill", "outputs") == [(space, f"{name}.public.orders")]
    assert ends["fill"]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert (data("sums", "inputs"), data("sums", "outputs")) == (
        [(space, f"{name}.public.orders")],
        [(space, f"{name}.s.totals")],
    )
    fields = ends["sums"]["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert fields["total"]["inputFields"] == [{"namespace": space, "name": f"{name}.public.orders", "field": "amount"}]
    assert (data("out", "inputs"), data("out", "outputs")) == (
        [(space, f"{name}.public.orders")],
        [(space, f"{name}.public.copies")],
    )
    assert (ends["fails"]["eventType"], data("fails", "inputs")) == ("FAIL", [(space, f"{name}.public.orders")])


async def test_the_credential_of_the_receiver_is_sent_and_seen_nowhere(
    tmp_path: Path, web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    token, wanted = "tok-8c1f-lineage", ["Bearer tok-8c1f-lineage"]

    @web.route("/lineage")
    async def lineage(received: ReceivedRequest, wire: Wire) -> None:
        await wire.answer(201 if received.headers.get("authorization") in wanted else 401)

    settings = settings_of(tmp_path, lineage__url=web.url("/lineage"), lineage__auth="secret:marquez")
    async with embedded(settings_of(tmp_path)) as runtime:
        run = await ran(runtime, playbook(tmp_path, web))
        poster = LineagePoster(settings, runtime._secrets)
        sender: LineageSender = lineage_sender(runtime.engine, settings, "me", poster)
        with pytest.raises(ServerUnavailable, match=r"lineage\.auth: .*arclog secret set marquez"):
            await sender.publish()
        assert [request for request in web.requests if request.path == "/lineage"] == []
        for value in ("tok-old-and-wrong", token):
            async with credentials_of(settings) as credentials:
                await credentials.put("marquez", value)
            if value != token:
                with pytest.raises(ServerUnavailable, match=r"lineage\.url answered 401"):
                    await sender.publish()
        await sender.publish()
        await poster.close()
        expected = await runtime.api.lineage(run)
        log = await runtime.api.events(run, limit=1000)
    posted = [json.loads(request.body) for request in web.requests if request.headers.get("authorization") in wanted]
    assert posted == expected
    for text in (json.dumps(posted), json.dumps(log), caplog.text):
        assert token not in text


@pytest.mark.parametrize(("given", "sent"), [("abc", "Bearer abc"), ("Basic YTpi", "Basic YTpi"), ("", None)])
async def test_a_credential_in_the_settings(tmp_path: Path, web: Web, given: str, sent: str | None) -> None:
    web.answers("/lineage", status=201)
    poster = LineagePoster(settings_of(tmp_path, lineage__url=web.url("/lineage"), lineage__auth=given))
    assert await poster.post(b"{}") == ("", True)
    assert web.requests[-1].headers.get("authorization") == sent
    await poster.close()
