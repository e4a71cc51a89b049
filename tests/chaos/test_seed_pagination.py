"""The canonical step spec's own example against a real PostgreSQL and an API that is at times unwell: undisturbed, and
under `kill -9` and `arclog resume`.

CHAOS_SEED and CHAOS_KILLS choose other moments and more of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from arclog.model.config.settings import Settings
from arclog.wiring.embedded import embedded
from tests.servers.postgres import Database
from tests.servers.web import ReceivedRequest, Web

PLAYBOOK = Path(__file__).with_name("seed_pagination.yaml")
SEED = int(os.environ.get("CHAOS_SEED", "20261115"))
KILLS = int(os.environ.get("CHAOS_KILLS", "15"))
LONGEST = 1.5
PAGE_SIZE = 20
#: pages by endpoint; /gone answers 404 and /closed 401
PAGES = {f"/items/{index}": 1 + index % 4 for index in range(12)}
ENDPOINTS = [{"path": path, "page_size": PAGE_SIZE} for path in (*PAGES, "/gone", "/closed")]
TABLES = """
CREATE TABLE results_ok (endpoint text, page int, id int, item jsonb, PRIMARY KEY (endpoint, page, id));
CREATE TABLE results_not_found (endpoint text PRIMARY KEY);
"""


class Api:
    """Pages of items. Every fifth page answers 503 when it is asked for first."""

    def __init__(self, web: Web) -> None:
        self.url = web.url("").rstrip("/")
        self.answers: Counter[int] = Counter()
        self._unwell: set[tuple[str, int]] = set()
        self._lock = threading.Lock()
        self.falls_ill()
        for path in PAGES:
            web.route(path)(self._page)
        web.route("/gone")(self._gone)
        web.route("/closed")(self._closed)

    def falls_ill(self) -> None:
        with self._lock:
            self._unwell = {page for number, page in enumerate(self._pages()) if number % 5 == 2}

    @staticmethod
    def _pages() -> list[tuple[str, int]]:
        return [(path, page) for path, count in PAGES.items() for page in range(1, count + 1)]

    async def _page(self, request: ReceivedRequest, wire: Any) -> None:
        query = dict(request.query)
        page = int(query["page"])
        assert int(query["pageSize"]) == PAGE_SIZE
        with self._lock:
            unwell = (request.path, page) in self._unwell
            self._unwell.discard((request.path, page))
        if unwell:
            await self._reply(wire, 503, {"error": "busy"})
            return
        last = PAGES[request.path]
        items = [{"id": page * 1000 + index, "name": f"{request.path}'{index}"} for index in range(PAGE_SIZE)]
        await self._reply(wire, 200, {"data": items, "paging": {"page": page, "hasMore": page < last}})

    async def _gone(self, _: ReceivedRequest, wire: Any) -> None:
        await self._reply(wire, 404, {"error": "nothing here"})

    async def _closed(self, _: ReceivedRequest, wire: Any) -> None:
        await self._reply(wire, 401, {"error": "who are you?"})

    async def _reply(self, wire: Any, status: int, body: Any) -> None:
        with self._lock:
            self.answers[status] += 1
        await wire.answer(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


class Cli:
    """The command line on one home, one database and one API."""

    def __init__(self, folder: Path, database: Database, api: Api) -> None:
        folder.mkdir()
        self.home = folder / "home"
        self.output = folder / "output"
        workload = folder / "workload.json"
        workload.write_text(json.dumps({"api_url": api.url, "endpoints": ENDPOINTS}))
        self.run = ["run", str(PLAYBOOK), "--json", "--workload", str(workload)]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ARCLOG_")}
        self.environment = {
            **clean,
            "ARCLOG_HOME": str(self.home),
            "ARCLOG_LEASES_MAX_LOSSES": "1000",
            "SEED_POSTGRES_DSN": database.dsn,
        }

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "arclog.cli.main", *args]
        with self.output.open("ab") as output:
            return subprocess.Popen(command, env=self.environment, stdout=output, stderr=output, start_new_session=True)

    def log_text(self) -> str:
        return self.output.read_text()[-3000:] if self.output.exists() else ""

    def ids(self) -> list[str]:
        async def look() -> list[str]:
            async with embedded(Settings({"home": str(self.home)}), read_only=True) as runtime:
                return [run.execution_id for run in await runtime.api.list(limit=10)]

        return asyncio.run(look()) if (self.home / "arclog.db").exists() else []

    def story(self) -> tuple[Any, list[dict[str, Any]]]:
        async def look() -> tuple[Any, list[dict[str, Any]]]:
            async with embedded(Settings({"home": str(self.home)}), read_only=True) as runtime:
                (only,) = await runtime.api.list(limit=10)
                return await runtime.api.summary(only.execution_id), await runtime.api.events(
                    only.execution_id, limit=100_000
                )

        return asyncio.run(look())


@pytest.fixture
def api() -> Iterator[Api]:
    with Web() as web:
        yield Api(web)


@pytest.fixture
def database(postgres: Database) -> Database:
    with postgres.connect() as connection:
        connection.execute(TABLES)
    return postgres


def test_the_playbook_is_the_specs_own_word_for_word() -> None:
    """All but credential, SQL and workload stands in the published example, in the same order."""
    step = next(
        step for step in yaml.safe_load(PLAYBOOK.read_text())["workflow"] if step["step"] == "fetch_all_endpoints"
    )
    assert [task["name"] for task in step["tool"]] == [
        "init_iter",
        "fetch_page",
        "route_by_status",
        "store_200",
        "store_404",
        "paginate",
    ]
    assert [arc["when"] for arc in step["next"]["arcs"]] == [
        "{{ event.name == 'loop.done' }}",
        "{{ event.name == 'step.failed' }}",
    ]


def _checked(cli: Cli, database: Database) -> list[dict[str, Any]]:
    """Right rows, right events, the right route."""
    summary, events = cli.story()
    assert summary.state == "COMPLETED", summary.error
    rows = database.rows("SELECT endpoint, page, id FROM results_ok ORDER BY 1, 2, 3")
    assert rows == sorted(
        (path, page, page * 1000 + index)
        for path, count in PAGES.items()
        for page in range(1, count + 1)
        for index in range(PAGE_SIZE)
    )
    assert database.rows("SELECT endpoint FROM results_not_found") == [("/gone",)]
    assert summary.result["stored"] == len(rows)
    types = Counter(event["event_type"] for event in events)
    assert types["loop.done"] == types["playbook.finished"] == 1
    assert types["loop.iteration.done"] == len(PAGES) + 1
    assert types["loop.iteration.failed"] == 1
    (done,) = [event for event in events if event["event_type"] == "loop.done"]
    payload = done["payload"]
    assert (payload["total"], payload["ok"], payload["failed"]) == (len(ENDPOINTS), len(PAGES) + 1, 1)
    assert payload["errors"][0]["index"] == len(PAGES) + 1
    assert payload["errors"][0]["kind"] == "auth"
    routed = next(event for event in events if event["event_type"] == "next.evaluated")
    assert [arc["step"] for arc in routed["payload"]["selected"]] == ["validate_results"]
    stored = [event for event in events if event["event_type"] == "task.done" and event["task"] == "store_200"]
    assert len(stored) == sum(PAGES.values())
    assert not re.search(r"password|postgresql://", json.dumps(events))
    return events


@pytest.mark.slow
def test_undisturbed(tmp_path: Path, database: Database, api: Api) -> None:
    cli = Cli(tmp_path / "plain", database, api)
    assert cli.start(*cli.run).wait(100) == 0, cli.log_text()
    events = _checked(cli, database)
    unwell = api.answers[503]
    assert unwell == sum(1 for event in events if event["event_type"] == "task.attempt.failed") > 3
    assert api.answers == {200: sum(PAGES.values()), 503: unwell, 404: 1, 401: 1}


@pytest.mark.slow
def test_killed_and_resumed(tmp_path: Path, database: Database, api: Api) -> None:
    """As many runs as it takes, each killed again and again until it ends."""
    random = Random(SEED)
    print(f"CHAOS_SEED={SEED} CHAOS_KILLS={KILLS}")
    kills = runs = 0
    while kills < KILLS:
        runs += 1
        with database.connect() as connection:
            connection.execute("TRUNCATE results_ok, results_not_found")
        api.falls_ill()
        cli = Cli(tmp_path / f"killed{runs}", database, api)
        moments = _until_it_ends(cli, random, KILLS - kills)
        kills += len(moments)
        print(f"run {runs}: killed after {moments}")
        _checked(cli, database)


def _until_it_ends(cli: Cli, random: Random, most: int) -> list[float]:
    """Start and resume a run, killing it each time a little later; tells after how long each time."""
    moments: list[float] = []
    todo = cli.run
    while True:
        process = cli.start(*todo)
        moment = round(random.uniform(0.05, LONGEST), 3) if len(moments) < most else 100.0
        try:
            code = process.wait(moment)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            moments.append(moment)
        else:
            assert code == 0, f"after kills at {moments}: {cli.log_text()}"
            return moments
        ids = cli.ids()
        if ids:
            todo = ["resume", *ids, "--json"]
