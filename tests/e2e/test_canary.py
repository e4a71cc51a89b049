"""A canary in every place where a secret can go: no spelling of it may be found in anything that arclog writes or prints.

Every worker kind that is installed needs a case here: tasks that are given the secret, give it back, print it, fail with it
and store it. The canary is new in each run and holds characters that every encoding spells
differently.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote, quote_plus
from zipfile import ZipFile

import apsw
import pytest
import zstandard

from arclog.cli.args import COMMANDS
from arclog.wiring.kinds import installed_kinds
from tests.servers.commands import run_bytes

PATIENCE_S = 60
#: Longer than a result that stays in the log.
LARGE = 80_000

REF = re.compile(r"noetl://[^\"\s]+")

Task = dict[str, Any]
IT = "{{ keychain.canary.value }}"


def fresh(tag: str) -> str:
    return f"{tag}{os.urandom(6).hex()} /+&=%\"'\\é✓{os.urandom(6).hex()}"


# --- the cases ------------------------------------------------------------------------------------------------------


def noop_tasks(_: str) -> list[Task]:
    return [
        {"kind": "noop", "data": {"text": f"a {IT} b", "list": [IT], "all": "{{ keychain }}"}},
        {"kind": "noop", "data": "{{ keychain.canary.value | urlencode }} {{ keychain.canary.value | tojson }}"},
        {"kind": "noop", "data": "{{ {keychain.canary.value: 1} }}"},
        {"kind": "noop", "data": "{{ keychain.canary.value + 1 }}"},
        {"kind": "noop", "data": "{{ keychain.canary.value.nothing }}"},
        {
            "kind": "noop",
            "data": "{{ keychain.stored.value }} {{ keychain.login.password }} {{ keychain.filed.token }}",
        },
    ]


PYTHON = """
import base64, hashlib, json, sys, urllib.parse

def main(it, how):
    print("out", it)
    print("err", repr(it), it.encode(), file=sys.stderr)
    spelt = [it, it.encode().hex() and base64.b64encode(b"user:" + it.encode()).decode(), urllib.parse.quote(it), json.dumps(it)]
    if how == "large":
        return {"rows": [f"{n} {it} " + "x" * 60 for n in range(800)]}
    if how == "raise":
        local = it
        raise ValueError(spelt)
    if how == "bad":
        return {it: object()}
    return {"spelt": spelt, it: 1, "sha256": hashlib.sha256(it.encode()).hexdigest()}
"""


def python_tasks(_: str) -> list[Task]:
    return [
        {"kind": "python", "code": PYTHON, "args": {"it": IT, "how": how}}
        for how in ("return", "large", "raise", "bad")
    ]


def shell_tasks(_: str) -> list[Task]:
    command_output = (
        'printf "%s" "$IT"; echo; printf "%s" "$IT" | base64 -w0; echo; echo "$IT" >&2; printf "%s" "$IT" | sha256sum'
    )
    return [
        {"kind": "shell", "command": ["sh", "-c", command_output], "env": {"IT": IT}},
        {"kind": "shell", "command": ["sh", "-c", f"{command_output}; exit 3"], "env": {"IT": IT}},
        {"kind": "shell", "command": ["echo", "an argument:", IT]},
        {"kind": "shell", "command": [IT]},
        {"kind": "shell", "command": "true", "cwd": f"/nowhere/{IT}"},
        {"kind": "shell", "command": ["env"], "env": {IT: "a name"}},
    ]


def http_tasks(url: str) -> list[Task]:
    sent = {"params": {"q": IT}, "headers": {"x-it": "{{ keychain.canary.value | urlencode }}"}}
    return [
        {"kind": "http", "url": f"{url}/200", **sent},
        {"kind": "http", "method": "POST", "url": f"{url}/200", "json": {"it": IT}},
        {"kind": "http", "method": "POST", "url": f"{url}/500", "form": {"it": IT}},
        {"kind": "http", "url": f"{url}/401/{{{{ keychain.canary.value | urlencode }}}}", "auth": "login"},
        {"kind": "http", "url": "http://127.0.0.1:9/{{ keychain.canary.value | urlencode }}"},
        {"kind": "http", "url": IT},
    ]


def sql_tasks(kind: str) -> Callable[[str], list[Task]]:
    def tasks(_: str) -> list[Task]:
        wrong = f"SELECT * FROM nowhere WHERE it = {IT}"
        return [
            {"kind": kind, "database": ":memory:", "command": f"SELECT {IT} AS it"},
            {"kind": kind, "database": ":memory:", "command": wrong},
            {"kind": kind, "database": "/nowhere/x", "command": f"SELECT {IT}"},
            {"kind": kind, "database": f"/nowhere/{IT}", "command": "SELECT 1"},
        ]

    return tasks


def object_tasks(url: str) -> list[Task]:
    there = "file://{{ workload.folder }}/it"
    s3 = {"kind": "object", "endpoint": url, "allow_http": True}
    return [
        {"kind": "object", "action": "put", "url": f"{there}.txt", "content": IT},
        {"kind": "object", "action": "get", "url": f"{there}.txt", "decode": "text"},
        {"kind": "object", "action": "get", "url": IT},
        {"kind": "object", "action": "get", "url": f"/nowhere/{IT}"},
        {**s3, "action": "get", "url": f"s3://200/{IT}"},
        {**s3, "action": "get", "url": "s3://200/{{ keychain.canary.value | urlencode }}", "auth": "login"},
        {**s3, "action": "get", "url": f"s3://403/{IT}", "auth": "login"},
        {**s3, "action": "put", "url": "s3://500/x", "content": IT, "content_type": IT},
        {**s3, "action": "list", "url": f"s3://{IT}/x"},
        {"kind": "object", "action": "get", "url": "s3://b/x", "endpoint": f"http://{IT}@host"},
    ]


def transfer_tasks(_: str) -> list[Task]:
    rows = [{"it": IT}]
    made = {"kind": "sqlite", "database": "{{ workload.folder }}/t.db", "table": IT, "create": True}
    nobody = {"kind": "postgres", "host": "127.0.0.1", "port": 9, "user": "u", "table": "t", "password": IT}
    nowhere = {"kind": "csv", "path": f"/nowhere/{IT}"}
    targets = [
        {"kind": "sqlite", "database": "/nowhere/x", "table": "t"},
        {"kind": "duckdb", "database": f"/nowhere/{IT}", "table": IT, "create": True},
        {"kind": "postgres", "dsn": IT, "table": "t"},
        made,
        nobody,
        nowhere,
    ]
    query = {"kind": "sqlite", "database": f"/nowhere/{IT}", "query": "SELECT :it", "params": {"it": IT}}
    return [
        *({"kind": "transfer", "rows": rows, "target": target} for target in targets),
        {"kind": "transfer", "rows": [IT], "target": made},
        {"kind": "transfer", "rows": rows, "columns": [IT], "target": made},
        {"kind": "transfer", "source": query, "target": made},
    ]


def postgres_tasks(_: str) -> list[Task]:
    """Without a server: what is said of one that is not there. Rows are redacted as those of any other task."""
    nobody = {"kind": "postgres", "host": "127.0.0.1", "port": 9, "user": "u", "dbname": "d", "command": f"SELECT {IT}"}
    return [{**nobody, "password": IT}, {**nobody, "user": IT}, {"kind": "postgres", "dsn": IT, "command": "SELECT 1"}]


def nats_tasks(_: str) -> list[Task]:
    """On the test's own server: what it gives back, what it refuses, and what is said of one that is not there."""
    connection = {"kind": "nats", "servers": "{{ workload.nats }}"}
    sent = {"op": "publish", "subject": "canary.it", "data": {"it": IT}, "headers": {"X-It": IT}}
    of_api = {
        "op": "request",
        "subject": "$JS.API.STREAM.CREATE.CANARY",
        "data": {"name": "CANARY", "subjects": ["canary.>"]},
    }
    consumer = {
        "stream_name": "CANARY",
        "config": {"durable_name": "it", "ack_policy": "explicit", "ack_wait": 1_000_000},
    }
    kept = {"bucket": "it", "key": "it"}
    return [
        {**connection, **of_api},
        {
            **connection,
            "op": "request",
            "subject": "$JS.API.STREAM.CREATE.KV_it",
            "data": {"name": "KV_it", "subjects": ["$KV.it.>"]},
        },
        {**connection, "op": "request", "subject": "$JS.API.CONSUMER.DURABLE.CREATE.CANARY.it", "data": consumer},
        {**connection, **sent, "stream": True, "msg_id": IT},
        {**connection, "op": "publish", "messages": [{"data": IT}], "stream": IT, "subject": "canary.it"},
        {**connection, "op": "fetch", "stream": "CANARY", "consumer": "it", "wait_s": 0.1},
        {**connection, "op": "kv_put", **kept, "data": IT},
        {**connection, "op": "kv_get", **kept},
        {**connection, "op": "kv_history", **kept, "decode": "base64"},
        {**connection, "op": "kv_get", "bucket": IT, "key": IT},
        {**connection, "op": "kv_get", "bucket": "it", "key": "{{ keychain.canary.value | urlencode }}"},
        {**connection, "op": "request", "subject": IT},
        {**connection, "op": "request", "subject": "nobody", "data": IT, "inbox_prefix": IT},
        {**connection, "op": "ack", "messages": [IT]},
        {**connection, **sent, "headers": {IT: "a name"}},
        {**connection, **sent, "auth": "login"},
        {**connection, **sent, "auth": "canary"},
        {"kind": "nats", **sent, "servers": f"nats://u:{IT}@127.0.0.1:9"},
        {"kind": "nats", **sent, "servers": "nats://u:{{ keychain.canary.value | urlencode }}@127.0.0.1:9"},
        {"kind": "nats", **sent, "servers": IT},
        {"kind": "nats", **sent, "servers": "nats://127.0.0.1:9", "auth": "filed"},
    ]


#: kind → its tasks; they get the address of a server that sends back what it is sent
CASES: dict[str, Callable[[str], list[Task]]] = {
    "noop": noop_tasks,
    "python": python_tasks,
    "shell": shell_tasks,
    "http": http_tasks,
    "sqlite": sql_tasks("sqlite"),
    "duckdb": sql_tasks("duckdb"),
    "nats": nats_tasks,
    "object": object_tasks,
    "transfer": transfer_tasks,
    "postgres": postgres_tasks,
}
WORKER_KINDS = sorted(name for name, kind in installed_kinds().items() if kind.runs_on == "worker")


def test_every_kind_has_a_canary():
    assert set(WORKER_KINDS) <= set(CASES), "add a case to CASES: tasks that are given the secret and give it away"


#: commands that show something of a run, and commands that show nothing of one
SHOWING = ("show", "status", "events", "logs", "why", "state", "replay", "lineage")
OTHERS = {"run", "check", "plan", "list", "secret", "result", "gc", "diff", "stats", "trace", "simulate", "export"}
SILENT = {"pause", "resume", "cancel", "retry", "skip", "approve", "reject", "signal", "version", "schema"}
#: What a server is made of; the credentials that it is given have tests of their own (tests/integration/server).
SILENT |= {"up", "server", "worker", "key", "audit", "schedule", "catalog"}
SILENT |= {"workers", "pool", "resource", "doctor", "backup", "restore"}
#: For authors, without a run; and fork, which starts one as retry does.
SILENT |= {"init", "dev", "fmt", "migrate", "test", "lsp", "completion", "fork"}
SILENT |= {"import"}


def test_every_command_is_looked_at():
    assert set(COMMANDS) == {*SHOWING, *OTHERS, *SILENT}, (
        "add the command to SHOWING, or to the run below, or to SILENT"
    )


# --- the run ----------------------------------------------------------------------------------------------------------


class Echo(BaseHTTPRequestHandler):
    """Sends back what it was sent, with the status that the path begins with."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        command_output = {"path": self.path, "headers": dict(self.headers), "body": body.decode("utf-8", "replace")}
        status = self.path.split("/")[1][:3]
        self.send_response(int(status) if status.isdigit() else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Echo", quote(self.path))
        answer = json.dumps(command_output).encode()
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815 - the name that http.server looks for

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def echo() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def playbook_of(tasks: list[Task], folder: Path, nats: str) -> dict[str, Any]:
    """The tasks in a pipeline and in a parallel loop; what they gave goes on into ctx, iter, args, a child and the result."""
    kept = {"do": "continue", "set_ctx": {"kept": "{{ outcome }}"}, "set_iter": {"kept": "{{ outcome }}"}}
    last = {"when": "{{ _attempt > 1 or outcome.status == 'ok' }}", "then": kept}
    again = {"else": {"then": {"do": "retry", "attempts": 2, "delay": 0}}}
    policy = {"policy": {"rules": [last, again]}}
    labelled = [{"name": f"t{index}", "spec": policy, **task} for index, task in enumerate(tasks)]
    views = " ".join(f"{{{{ t{index} | tojson }}}}" for index in range(len(tasks)))
    looking = {"name": "look", "kind": "noop", "data": {"views": views, "iter": "{{ iter }}"}}
    spread = [
        {"name": task["name"], **task, "spec": {"policy": {"rules": [{"else": {"then": {"do": "continue"}}}]}}}
        for task in labelled
    ]
    return {
        "metadata": {"name": "canary"},
        "workload": {"folder": str(folder), "nats": nats},
        "keychain": [
            {"name": "canary", "kind": "env", "var": "CANARY"},
            {"name": "stored", "kind": "secret"},
            {"name": "login", "kind": "basic", "username": "ada", "password": {"env": "CANARY_PASSWORD"}},
            {"name": "filed", "kind": "file", "path": str(folder / "filed.json"), "format": "json"},
        ],
        "executor": {"spec": {"result": {"ctx": "{{ ctx }}", "step": "{{ start }}"}}},
        "workflow": [
            {
                "step": "start",
                "tool": [*labelled, looking],
                "next": {"arcs": [{"step": "more", "args": {"a": "{{ ctx }}"}}]},
            },
            {
                "step": "more",
                "loop": {"in": [1, 2], "iterator": "n", "spec": {"mode": "parallel"}},
                "tool": spread,
                "next": {"arcs": [{"step": "child", "args": {"a": "{{ args }}"}}]},
            },
            {
                "step": "child",
                "tool": {"kind": "playbook", "file": "child.yaml", "args": {"ctx": "{{ ctx }}", "args": "{{ args }}"}},
                "next": {"arcs": [{"step": "last"}]},
            },
            # The last step fails with what the first ones left.
            {"step": "last", "tool": {"kind": "noop", "data": "{{ keychain.canary.value.a.b }}"}},
        ],
    }


def spellings(secret: str) -> Iterator[str]:
    raw = secret.encode()
    yield from (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    yield from (repr(raw)[2:-1], quote(secret), quote(secret, safe=""), quote_plus(secret), html.escape(secret))
    for before in range(3):
        whole = base64.b64encode(bytes(before) + raw)
        core = whole.decode()[before + 1 if before else 0 : -4]
        yield from (core, core.replace("+", "-").replace("/", "_"))
    # The two halves that no encoding changes: not even a part gets through.
    yield from (secret[:10], secret[-10:])


def written(home: Path) -> Iterator[tuple[str, bytes]]:
    """Everything in the home: as it is, and with what is compressed unpacked."""
    for file in home.rglob("*"):
        if file.is_file() and file.name != "secrets.json":
            yield from unpacked(file.name, file.read_bytes())
    database = apsw.Connection(str(home / "arclog.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for (table,) in list(database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")):
            for row in database.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    if isinstance(value, (str, bytes)):
                        yield from unpacked(table, value.encode() if isinstance(value, str) else value)
    finally:
        database.close()


def unpacked(name: str, body: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, body
    at = body.find(zstandard.FRAME_HEADER)
    while at >= 0:
        with suppress(zstandard.ZstdError):  # four bytes that only look like a beginning
            yield f"{name} (unpacked at {at})", zstandard.ZstdDecompressor().stream_reader(body[at:]).read()
        at = body.find(zstandard.FRAME_HEADER, at + 1)


def command_output(words: list[str], env: dict[str, str]) -> tuple[str, bytes]:
    done = run_bytes(*words, timeout=PATIENCE_S, env=env)
    return " ".join(words), done.stdout + b"\n" + done.stderr


#: Command lines that look at what is there, one after the other in one process: a start for each takes longer than they do.
SEVERAL = """
import json, sys
from arclog.cli.main import command
for words in json.load(sys.stdin):
    command(words)
    for stream in (sys.stdout, sys.stderr):
        stream.write("\\0")
        stream.flush()
"""


def command_outputs(lines: list[list[str]], env: dict[str, str]) -> list[tuple[str, bytes]]:
    program = [sys.executable, "-c", SEVERAL]
    done = subprocess.run(program, input=json.dumps(lines).encode(), capture_output=True, timeout=PATIENCE_S, env=env)
    assert done.returncode == 0, done.stderr
    heard = zip(done.stdout.split(b"\0"), done.stderr.split(b"\0"), strict=True)
    return [(" ".join(words), out + b"\n" + err) for words, (out, err) in zip(lines, list(heard)[:-1], strict=True)]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", WORKER_KINDS)
def test_a_secret_is_found_nowhere(kind, tmp_path, echo, nats_server, monkeypatch):
    monkeypatch.chdir(tmp_path)
    secrets = {name: fresh(name) for name in ("canary", "stored", "login", "filed")}
    home = tmp_path / "home"
    (tmp_path / "filed.json").write_text(json.dumps({"token": secrets["filed"]}))
    (tmp_path / "child.yaml").write_text(
        "metadata: {name: child}\nworkflow: [{step: a, tool: {kind: noop, data: '{{ workload }}'}}]"
    )
    (tmp_path / "canary.yaml").write_text(json.dumps(playbook_of(CASES[kind](echo), tmp_path, nats_server.url)))
    env = {**os.environ, "ARCLOG_HOME": str(home), "ARCLOG_DEBUG": "1", "ARCLOG_ENGINE_SNAPSHOT_EVENTS": "10"}
    env |= {"CANARY": secrets["canary"], "CANARY_PASSWORD": secrets["login"]}
    kept = run_bytes("secret", "set", "stored", stdin=secrets["stored"].encode(), env=env)
    assert kept.returncode == 0, kept.stderr
    playbook = str(tmp_path / "canary.yaml")
    outputs = [command_output(["run", playbook], env), command_output(["run", playbook, "--json"], env)]
    looks = [
        *([command, "last"] for command in SHOWING),
        *([command, playbook] for command in ("check", "plan")),
        *(
            ["list"],
            ["secret", "list"],
            ["result", "list", "last"],
            ["diff", "last", "last"],
            ["stats", "canary"],
            ["trace", "last", "--value", "result"],
            ["simulate", playbook, "--from", "last"],
        ),
    ]
    outputs += command_outputs([[*words, *more] for more in ([], ["--json"]) for words in looks], env)
    refs = REF.findall(dict(outputs)["result list last --json"].decode())
    contents = {ref.rpartition("/")[2]: ref for ref in refs}.values()  # each content once
    archive = tmp_path / "run.arclog"
    looks = [["result", action, ref] for ref in contents for action in ("show", "get")]
    outputs += command_outputs([*looks, ["gc", "--dry-run", "--json"], ["export", "last", "-o", str(archive)]], env)
    with ZipFile(archive) as parts:
        outputs += [(f"run.arclog: {name}", parts.read(name)) for name in parts.namelist()]
    # It really was there, and it really was taken out.
    events = dict(outputs)["events last --json"].decode()
    assert "[redacted:canary]" in events, events
    assert '"step":"last"' in events, events
    # Its hash is not a spelling of it, and shows that the tool had it.
    if kind in ("python", "shell"):
        assert hashlib.sha256(secrets["canary"].encode()).hexdigest() in events
    if kind == "python":
        assert any(words.startswith("result get") and b"[redacted:canary]" in body for words, body in outputs)
    everything = [*outputs, *written(home)]
    for name, secret in secrets.items():
        for spelt in dict.fromkeys(spellings(secret)):
            for where, body in everything:
                assert spelt.encode() not in body, f"{name} as {spelt!r} in {where}"
