"""A server's own log: one JSON object a line, ids as fields."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.server.observability.logs import operators_log
from tests.servers.arclog import running


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_messages_of_the_engine_come_with_their_ids() -> None:
    stream = io.StringIO()
    log = logging.getLogger("arclog.engine")
    before = logging.getLogger("arclog").level
    with operators_log(Settings(), stream):
        log.warning("execution %s: cannot continue: %s; retrying in %g s", 77, "disk full", 0.5)
        log.warning("worker %s stops command %s: %s", "host-1-ab", 5, "run %s {x}\nsecond line")
        log.info("schedule %s: due %s, started run %s", "nightly", "noon", 88)
        log.info("done", extra={"worker_id": "w"})
        log.debug("not told")
        try:
            raise ValueError("boom")
        except ValueError:
            log.exception("execution %s: bug", 9)
    log.warning("after the end")
    first, second, third, fourth, fifth = lines(stream.getvalue())
    assert first["event"] == "execution 77: cannot continue: disk full; retrying in 0.5 s"
    assert (first["execution_id"], first["level"], first["logger"]) == ("77", "warning", "arclog.engine")
    assert first["timestamp"].endswith("Z")
    assert (second["worker_id"], "execution_id" in second) == ("host-1-ab", False)
    assert (third["execution_id"], third["schedule"]) == ("88", "nightly")
    assert fourth["worker_id"] == "w"
    assert "ValueError: boom" in fifth["exception"]
    assert logging.getLogger("arclog").level == before


def test_plain_lines_when_asked_for() -> None:
    stream = io.StringIO()
    with operators_log(Settings({"server.log_format": "plain", "server.log_level": "warning"}), stream):
        logging.getLogger("arclog.engine").info("quiet")
        logging.getLogger("arclog.engine").warning("run %s: loud", 5)
    assert "run 5: loud" in stream.getvalue()
    assert "quiet" not in stream.getvalue()
    assert not stream.getvalue().startswith("{")


@pytest.mark.parametrize("form", ["plain", "json"])
def test_a_traceback_has_no_values_of_variables(form: str) -> None:
    stream = io.StringIO()

    def fail() -> None:
        password = "yranac"[::-1]
        raise ValueError(len(password))

    with operators_log(Settings({"server.log_format": form}), stream):
        try:
            fail()
        except ValueError:
            logging.getLogger("arclog.engine").exception("a bug")
    assert "ValueError: 6" in stream.getvalue()
    assert "canary" not in stream.getvalue()


async def test_a_server_says_when_runs_begin_and_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = "metadata: {name: fine, path: flows/fine}\nworkflow: [{step: start, tool: {kind: noop}}]\n"
    bad = "metadata: {name: bad}\nworkflow: [{step: start, tool: {kind: shell, command: exit 3}}]\n"
    async with running(tmp_path / "home") as server, server.client() as client:
        ids = []
        for text in (good, bad):
            started = await client.post("/api/execute", json={"playbook": text})
            ids.append(started.json()["execution_id"])
            async with client.stream("GET", f"/api/executions/{ids[-1]}/events/stream") as stream:
                async for _ in stream.aiter_lines():
                    pass
    logged = [line for line in lines(capsys.readouterr().err) if "execution_id" in line]
    assert [(run["execution_id"], run["event"]) for run in logged] == [
        (ids[0], "run requested"),
        (ids[0], "run ended"),
        (ids[1], "run requested"),
        (ids[1], "run ended"),
    ]
    assert (logged[0]["path"], logged[1]["state"]) == ("flows/fine", "COMPLETED")
    assert (logged[3]["state"], logged[3]["level"]) == ("FAILED", "warning")
    assert logged[3]["error"]
