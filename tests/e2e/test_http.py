"""http tasks as people meet them: real processes, a real server, and every kind of trouble in the log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.commands import ARCLOG, run_text
from tests.servers.web import ReceivedRequest, Web, Wire

PATIENCE_S = 60

PAGES = """
metadata: {name: pages}
workload: {api_url: ""}
executor: {spec: {result: "{{ {'items': ctx.items, 'statuses': ctx.statuses} }}"}}
workflow:
  - step: start
    tool:
      - name: fetch_page
        kind: http
        method: GET
        url: "{{ workload.api_url }}/rooms"
        params: {page: "{{ iter.page | default(1) }}", pageSize: 2}
        headers: {Idempotency-Key: "{{ _task.key }}"}
        spec:
          timeout: {connect: 5, read: 15}
          policy:
            rules:
              - when: "{{ outcome.status == 'error' and outcome.http.status in [429, 500, 502, 503, 504] }}"
                then: {do: retry, attempts: 10, backoff: exponential, delay: 0.01}
              - when: "{{ outcome.status == 'error' and outcome.http.status in [401, 403] }}"
                then: {do: fail}
              - else:
                  then:
                    do: continue
                    set_iter:
                      status: "{{ outcome.http.status }}"
                      more: "{{ outcome.result.data.paging.hasMore | default(false) }}"
                      page: "{{ (outcome.result.data.paging.page | default(0)) + 1 }}"
                    set_ctx:
                      items: "{{ (ctx.items | default([])) + (outcome.data.data | default([])) }}"
                      statuses: "{{ (ctx.statuses | default([])) + [outcome.http.status] }}"
      - name: route
        kind: noop
        spec:
          policy:
            rules:
              - {when: "{{ iter.more }}", then: {do: jump, to: fetch_page}}
              - else: {then: {do: break}}
"""


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("ARCLOG_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        yield server


def arclog(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run_text(*words, env={**os.environ, **env}, timeout=PATIENCE_S)


def run(text: str, *words: str, code: int = 0, **env: str) -> dict[str, Any]:
    Path("p.yaml").write_text(text, encoding="utf-8")
    done = arclog("run", "p.yaml", "--json", *words, **env)
    assert done.returncode == code, done.stdout + done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def events(kind: str) -> list[dict[str, Any]]:
    done = arclog("events", "last", "--json", "--type", kind)
    return [json.loads(line) for line in done.stdout.splitlines()]


def paged(web: Web, *first: tuple[int, dict[str, str]]) -> None:
    """Three pages of rooms; these answers come before the first."""
    troubles = list(first)

    @web.route("/rooms")
    async def rooms(received: ReceivedRequest, wire: Wire) -> None:
        page = int(dict(received.query)["page"])
        if troubles:
            status, headers = troubles.pop(0)
            await wire.answer(status, b'{"error": "not now"}', {"Content-Type": "application/json", **headers})
            return
        body = {"data": [page * 10, page * 10 + 1], "paging": {"page": page, "hasMore": page < 3}}
        await wire.answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


def test_pages_with_retries(where: Path, web: Web) -> None:
    paged(web, (503, {"Retry-After": "0"}), (429, {}), (502, {}))

    summary = run(PAGES, "--set", f"api_url={web.url('')}")

    assert summary["result"] == {"items": [10, 11, 20, 21, 30, 31], "statuses": [200, 200, 200]}
    assert [dict(request.query)["page"] for request in web.requests] == ["1", "1", "1", "1", "2", "3"]
    keys = [request.headers["idempotency-key"] for request in web.requests]
    assert len(set(keys[:4])) == 1
    assert len(set(keys)) == 3
    failed = [event["payload"]["outcome"] for event in events("task.attempt.failed")]
    assert [outcome["error"]["kind"] for outcome in failed] == ["server_error", "rate_limit", "server_error"]
    assert failed[0]["meta"]["retry_after_s"] == 0.0
    assert failed[0]["data"] == {"error": "not now"}
    done = events("task.done")[0]["payload"]["outcome"]
    assert done["http"]["status"] == 200
    assert done["result"]["data"] == done["data"]


def test_a_401_fails_the_run_and_the_cli_says_why(where: Path, web: Web) -> None:
    paged(web, (401, {}))
    Path("p.yaml").write_text(PAGES, encoding="utf-8")

    done = arclog("run", "p.yaml", "--set", f"api_url={web.url('')}")

    assert done.returncode == 1
    assert "auth (401): GET" in done.stdout
    assert "answered 401 Unauthorized: not now" in done.stdout


def test_a_404_is_routed(where: Path, web: Web) -> None:
    paged(web, (404, {}))
    summary = run(PAGES, "--set", f"api_url={web.url('')}")
    assert summary["result"] == {"items": [], "statuses": [404]}


LARGE = """
metadata: {name: large}
workload: {base: ""}
executor: {spec: {result: "{{ ctx }}", ctx: {sum: {reducer: sum, initial: 0}}}}
workflow:
  - step: start
    tool:
      - {name: blob, kind: http, url: "{{ workload.base }}/blob", download: true}
      - {name: send, kind: http, method: PUT, url: "{{ workload.base }}/up", body: "{{ blob.data }}"}
      - {name: rows, kind: http, url: "{{ workload.base }}/rows"}
      - {name: post, kind: http, method: POST, url: "{{ workload.base }}/up", body: "{{ rows.data }}"}
      - {name: last, kind: noop, data: "{{ rows.data[-1].n }}"}
      - {name: map, kind: http, url: "{{ workload.base }}/map"}
      - {name: again, kind: http, url: "{{ workload.base }}/rows"}
    next: {arcs: [{step: each, when: "{{ outcome.http.status == 200 }}"}]}
  - step: each
    loop: {in: "{{ start.data }}", iterator: row, spec: {mode: parallel, max_in_flight: 5}}
    tool:
      kind: noop
      data: "{{ iter.row.n }}"
      spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {sum: "{{ outcome.data }}"}}}}]}}
"""


def test_large_bodies_stay_out_of_the_log_and_are_used_all_the_same(where: Path, web: Web) -> None:
    blob = bytes(range(256)) * 1000
    rows = [{"n": n, "pad": "x" * 1000} for n in range(200)]
    web.answers("/blob", blob, kind="application/octet-stream")
    web.answers("/rows", json=rows)
    web.answers("/map", json={"rows": rows})
    web.answers("/up", json=1)

    summary = run(LARGE, "--set", f"base={web.url('')}")

    assert summary["result"] == {"sum": sum(range(200))}
    put, post = (request for request in web.requests if request.path == "/up")
    assert put.body == blob
    assert json.loads(post.body) == rows
    done = {event["task"]: event["payload"]["outcome"] for event in events("task.done")}
    assert done["last"]["data"] == 199
    assert done["blob"]["result_ref"]["meta"]["content_type"] == "application/octet-stream"
    assert done["rows"]["result_ref"]["meta"]["rows"] == 200
    metas = {name: done[name]["result_ref"]["meta"] for name in ("blob", "rows", "map")}
    assert {name: (meta["shape"], meta["schema_hint"]) for name, meta in metas.items()} == {
        "blob": ("bytes", "bytes"),
        "rows": ("list", "list"),
        "map": ("data", "map"),
    }
    assert max(len(json.dumps(event)) for event in events("task.done")) < 4096


ONE = 'metadata: {{name: one}}\nworkflow:\n  - {{step: start, tool: {{kind: http, url: "{url}"{more}}}}}\n'


def test_loopback_is_reached_unless_it_is_forbidden(where: Path, web: Web) -> None:
    web.answers("/x", json={"a": 1})
    text = ONE.format(url=web.url("/x"), more="")

    assert run(text)["result"] == {"a": 1}
    for setting in ("none", "10.0.0.0/8"):
        error = run(text, code=1, ARCLOG_HTTP_ALLOW_NETWORKS=setting)["error"]
        assert (error["kind"], error["code"]) == ("config", "ADDRESS_REFUSED")
    assert len(web.requests) == 1


def test_a_private_address_is_refused(where: Path) -> None:
    error = run(ONE.format(url="http://169.254.169.254/latest/meta-data/", more=""), code=1)["error"]
    assert (error["kind"], error["code"], error["retryable"]) == ("config", "ADDRESS_REFUSED", False)


def test_a_setting_that_is_wrong_is_said_before_anything_runs(where: Path) -> None:
    Path("p.yaml").write_text(ONE.format(url="http://127.0.0.1/", more=""), encoding="utf-8")
    done = arclog("run", "p.yaml", ARCLOG_HTTP_ALLOW_NETWORKS="10.0.0.0/99")
    assert done.returncode == 2
    assert "http.allow_networks: '10.0.0.0/99' is not a network" in done.stderr


def test_an_attempt_that_takes_too_long(where: Path, web: Web) -> None:
    web.stalls("/x")
    error = run(ONE.format(url=web.url("/x"), more=", spec: {timeout: {total: 1}}"), code=1)["error"]
    assert error["kind"] == "timeout"
    assert "1 s (spec.timeout)" in error["message"]
    assert web.left.wait(PATIENCE_S)


def test_a_cancelled_run_closes_its_connection(where: Path, web: Web) -> None:
    web.stalls("/x", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")
    Path("p.yaml").write_text(ONE.format(url=web.url("/x"), more=""), encoding="utf-8")
    with subprocess.Popen([*ARCLOG, "run", "p.yaml", "--json"], stdout=subprocess.PIPE, text=True) as process:
        assert web.reached.wait(PATIENCE_S)
        assert arclog("cancel", "last").returncode == 0
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3, out
    assert web.left.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (", spec: {timeout: {conect: 1}}", "did you mean connect?"),
        (", spec: {timeout: {connect: 0}}", "must be more than 0"),
        (", spec: {timeout: soon}", "expected a number or a map"),
        (", decode: xml", "decode"),
        (", methd: GET", "did you mean method?"),
        (", multipart: [{nam: x}]", "did you mean name?"),
    ],
)
def test_check_finds_what_is_wrong_with_a_task(where: Path, more: str, says: str) -> None:
    Path("p.yaml").write_text(ONE.format(url="http://x/", more=more), encoding="utf-8")
    done = arclog("check", "p.yaml")
    assert done.returncode == 2
    assert says in done.stdout + done.stderr


def test_a_map_of_timeouts_is_for_http_alone(where: Path) -> None:
    Path("p.yaml").write_text(
        "metadata: {name: p}\nworkflow:\n  - {step: start, tool: {kind: noop, spec: {timeout: {connect: 1}}}}\n",
        encoding="utf-8",
    )
    done = arclog("check", "p.yaml")
    assert done.returncode == 2
    assert "task.spec.timeout: expected a number, found a map" in done.stdout + done.stderr


def test_a_playbook_without_http_does_not_import_the_client(where: Path) -> None:
    Path("p.yaml").write_text("metadata: {name: p}\nworkflow: [{step: start, tool: {kind: noop}}]\n", encoding="utf-8")
    words = [sys.executable, "-X", "importtime", *ARCLOG[1:], "run", "p.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert "arclog" in imported
    assert not imported & {"httpx2", "httpcore2", "anyio", "h2", "h11"}


SECRET = """
metadata: {name: secret}
keychain: [{name: api, kind: env, var: SHOP_TOKEN}]
workload: {base: ""}
workflow:
  - step: start
    tool: {kind: http, url: "{{ workload.base }}/x", auth: api, params: {q: "{{ keychain.api.value }}"}}
"""


def test_a_credential_reaches_the_server_and_nobody_else(where: Path, web: Web) -> None:
    """The server says everything back that it was told: in its body, its headers and its address."""
    canary = "canary/7f3a=secret"

    @web.route("/x")
    async def echo(received: ReceivedRequest, wire: Wire) -> None:
        authorization = received.headers["authorization"]
        body = json.dumps({"error": f"{authorization} is wrong", "target": received.target}).encode()
        await wire.answer(401, body, {"Content-Type": "application/json", "X-Echo": authorization})

    Path("p.yaml").write_text(SECRET, encoding="utf-8")
    done = arclog("run", "p.yaml", "--set", f"base={web.url('')}", SHOP_TOKEN=canary)

    assert done.returncode == 1
    assert web.requests[0].headers["authorization"] == f"Bearer {canary}"
    assert dict(web.requests[0].query) == {"q": canary}
    shown = done.stdout + done.stderr
    for words in (("events", "last", "--json"), ("logs", "last"), ("show", "last", "--json"), ("why", "last")):
        shown += arclog(*words).stdout
    assert "answered 401" in shown
    for form in (canary, "canary%2F7f3a%3Dsecret", "Y2FuYXJ5LzdmM2E9c2VjcmV0"):
        assert form not in shown
