"""The published OpenAPI document: complete, and true under whatever it lets one send."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HELLO = "metadata: {name: hello}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n"
#: of each route; together they stay below half a minute
EXAMPLES = int(os.environ.get("OPENAPI_EXAMPLES", "3"))
#: nothing waits longer than this, whatever is asked
LONGEST_S = 25


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home: Path = tmp_path_factory.mktemp("server")
    surroundings = {
        **os.environ,
        "ARCLOG_HOME": str(home),
        "ARCLOG_SERVER_LONG_POLL_S": "0.1",
        # Keys are made on the way; they must not lock the rest out.
        "ARCLOG_AUTH_MODE": "none",
        "ARCLOG_SERVER_KEEP_ALIVE_S": "0.1",
    }
    command = (sys.executable, "-m", "arclog.cli.main", "up", "--port", "0", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=surroundings) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            assert process.wait(30) == 0


@pytest.fixture(scope="module")
def ended(url: str) -> str:
    """A run that is over."""
    with httpx2.Client(base_url=url, trust_env=False, verify=False) as client:
        execution_id: str = client.post("/api/executions", json={"playbook": HELLO}).json()["execution_id"]
        client.get(f"/api/executions/{execution_id}/events/stream").read()
        return execution_id


def test_every_route_has_an_example_and_says_its_errors(url: str) -> None:
    document = httpx2.get(f"{url}/api/openapi.json", trust_env=False, verify=False, timeout=LONGEST_S).json()
    text = json.dumps(document)
    missing = [
        name
        for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
        if name not in document["components"]["schemas"]
    ]
    assert not missing
    for path, routes in document["paths"].items():
        for method, route in routes.items():
            where = f"{method} {path}"
            assert route.get("description"), where
            contents = [
                content
                for code, answer in route["responses"].items()
                for content in answer.get("content", {}).values()
                if code.startswith("2")
            ]
            contents += route.get("requestBody", {}).get("content", {}).values()
            assert contents or {"204", "303"} & route["responses"].keys(), where
            assert all("example" in content for content in contents), where
            assert "application/problem+json" in route["responses"]["422"]["content"], where


@pytest.mark.slow
def test_nothing_that_fits_the_document_breaks_the_server(url: str, ended: str) -> None:
    import schemathesis  # takes a second: only the process that runs this test pays for it
    from schemathesis import GenerationMode

    schema = schemathesis.openapi.from_url(f"{url}/api/openapi.json")
    answers: dict[int, int] = {}
    operations: list[Any] = [cast("Any", operation).ok() for operation in schema.get_all_operations()]
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    for operation, mode in product(operations, modes):
        if mode is GenerationMode.NEGATIVE and not can_be_wrong(operation.definition.raw):
            continue  # Hypothesis would try 500 times
        strategy = operation.as_strategy(generation_mode=mode)

        @given(case=strategy, real=st.booleans())
        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        def send(case: Any, real: bool) -> None:
            if real and "execution_id" in (case.path_parameters or {}):
                case.path_parameters["execution_id"] = ended
            answer = case.call(timeout=LONGEST_S)
            answers[answer.status_code] = answers.get(answer.status_code, 0) + 1
            assert answer.status_code < 500, f"{case.method} {case.formatted_path}: {answer.status_code} {answer.text}"
            if answer.status_code >= 400:
                assert answer.headers["content-type"][0] == "application/problem+json"

        send()
    assert httpx2.get(f"{url}/ready", trust_env=False, verify=False).status_code == 200
    # It was not all refused at the door.
    assert sum(count for code, count in answers.items() if code < 300) > 100, answers
    print(answers)


def can_be_wrong(route: dict[str, Any]) -> bool:
    """Whether a route takes more than texts in its path, which can be any."""
    limits = [{"in": parameter["in"], **parameter["schema"], "title": ""} for parameter in route.get("parameters", ())]
    return "requestBody" in route or any(limit != {"in": "path", "type": "string", "title": ""} for limit in limits)


@pytest.mark.parametrize("raw", [b"\xff", b'"\\ud800"', b"[" * 60_000, b'{"playbook": "\\u0000"}', b"1e999", b"{}" * 2])
@pytest.mark.parametrize(
    "route", ["/api/executions", "/api/catalog", "/api/executions/ID/signal", "/api/catalog/archive"]
)
def test_bodies_that_are_no_requests(url: str, ended: str, route: str, raw: bytes) -> None:
    answer = httpx2.post(url + route.replace("ID", ended), content=raw, trust_env=False, verify=False)
    assert answer.status_code == 422
    assert answer.json()["detail"]
