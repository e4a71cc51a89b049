"""Secrets as people meet them: kept by the command, used by runs, and everything that can be wrong with them."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from tests.servers.commands import ARCLOG, run_bytes, run_text
from tests.servers.managers import VaultServer, running

PATIENCE_S = 60
SECRET = "hunter2 & more"
#: seed 004, 2.1, with a task that uses both
SEED = """\
metadata: {name: seed}
keychain:
- name: openai_token
  kind: secret_manager
- name: pg_k8s
  kind: postgres_credential
workflow:
- step: start
  tool: {kind: noop, data: "{{ keychain.openai_token.value | length }} {{ keychain.pg_k8s.password | length }}"}
"""


@pytest.fixture(autouse=True)
def _where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARCLOG_HOME", "home")


def arclog(*words: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return run_text(*words, stdin=stdin, env={**os.environ, **env}, timeout=PATIENCE_S)


def run(text: str, *, code: int = 0, **env: str) -> dict[str, Any]:
    Path("flow.yaml").write_text(text)
    done = arclog("run", "flow.yaml", "--json", **env)
    assert done.returncode == code, done.stdout + done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def types_of(execution_id: str) -> list[tuple[str, str]]:
    lines = arclog("events", execution_id, "--json").stdout.splitlines()
    return [(event["event_type"], event["status"]) for event in map(json.loads, lines)]


def one_task(entry: str, tool: str) -> str:
    return f"metadata: {{name: p}}\nkeychain: [{entry}]\nworkflow: [{{step: start, tool: {tool}}}]\n"


FROM_FILE = one_task("{name: it, kind: file, path: it.txt}", "{kind: noop, data: '{{ keychain.it.value | length }}'}")


def test_the_seeds_example_runs_once_the_store_has_its_names():
    failed = run(SEED, code=1)
    assert failed["error"]["kind"] == "auth"
    assert "keychain entry openai_token (kind secret_manager)" in failed["error"]["message"]
    assert "keychain entry pg_k8s (kind postgres_credential)" in failed["error"]["message"]
    assert "arclog secret set pg_k8s" in failed["error"]["message"]
    # Visible, never lost, and not begun.
    assert types_of(failed["execution_id"]) == [
        ("playbook.execution.requested", "in_progress"),
        ("playbook.request.evaluated", "error"),
        ("playbook.finished", "error"),
        ("playbook.processed", "success"),
    ]
    assert arclog("secret", "set", "openai_token", stdin="sk-12345\n").returncode == 0
    assert arclog("secret", "set", "pg_k8s", stdin='{"host": "h", "password": "secret"}').returncode == 0
    assert run(SEED)["result"] == "8 6"
    assert json.loads(arclog("retry", failed["execution_id"], "--json").stdout)["result"] == "8 6"


def test_set_list_and_rm():
    assert "no secrets" in arclog("secret", "list").stdout
    assert not Path("home").exists()
    assert arclog("secret", "set", "one", stdin=f"{SECRET}\n").returncode == 0
    assert (
        arclog("secret", "set", "two", "--from-env", "TWO", TWO='{"user": "u", "password": "pw-two"}').returncode == 0
    )
    Path("three.txt").write_text(SECRET)
    assert arclog("secret", "set", "three", "--from-file", "three.txt", "--scope", "default").returncode == 0
    listed = arclog("secret", "list", "--json")
    rows = json.loads(listed.stdout)
    assert [(row["name"], row["scope"], row["fields"]) for row in rows] == [
        ("one", "default/default/local", []),
        ("three", "default", []),
        ("two", "default/default/local", ["user", "password"]),
    ]
    assert set(rows[0]) == {"name", "scope", "fields", "set_at"}
    assert "hunter2" not in listed.stdout + arclog("secret", "list").stdout
    assert arclog("secret", "rm", "three").returncode == 2
    assert arclog("secret", "rm", "three", "--scope", "default").returncode == 0
    assert [row["name"] for row in json.loads(arclog("secret", "list", "--json").stdout)] == ["one", "two"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["set"], "a NAME is required"),
        (["rm"], "a NAME is required"),
        (["set", "a", SECRET], "must not be an argument"),
        (["set", "a b"], "cannot be the name"),
        (["set", "a", "--scope", "x/y/z/w"], "is not a scope"),
        (["set", "a", "--from-env", "NOT_THERE"], "is not set"),
        (["set", "a", "--from-file", "nowhere"], "No such file"),
        (["set", "a", "--from-env", "A", "--from-file", "b"], "not allowed with"),
        (["list", "a"], "takes no name"),
        (["rm", "a", "--from-env", "B"], "are options of `secret set`"),
        (["show", "a"], "invalid choice"),
    ],
)
def test_what_the_command_refuses(words, says):
    done = arclog("secret", *words, stdin="value")
    assert done.returncode == 2
    assert says in done.stderr
    assert "hunter2" not in done.stderr
    assert not Path("home/secrets.json").exists()


def test_an_empty_or_binary_value_is_refused_and_a_short_one_is_warned_of():
    assert "is empty" in arclog("secret", "set", "a", stdin="\n").stderr
    raw = run_bytes("secret", "set", "a", stdin=b"\xff")
    assert b"not UTF-8" in raw.stderr
    done = arclog("secret", "set", "a", stdin="abc")
    assert done.returncode == 0
    assert "fewer than 4 characters" in done.stderr


def test_a_terminal_is_asked_without_echo():
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [*ARCLOG, "secret", "set", "typed"], stdin=writer, stdout=writer, stderr=writer, start_new_session=True
    )
    os.close(writer)
    seen = b""
    try:
        while b"value of typed" not in seen:
            assert select.select([reader], [], [], PATIENCE_S)[0], seen
            seen += os.read(reader, 1000)
        os.write(reader, f"{SECRET}\n".encode())
        while True:
            try:
                part = os.read(reader, 1000)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)
    assert b"hunter2" not in seen
    text = one_task("{name: typed, kind: secret}", "{kind: noop, data: '{{ keychain.typed.value | length }}'}")
    assert run(text)["result"] == len(SECRET)


# --- what can be wrong when a run begins ----------------------------------------------------------------------------


def test_a_file_that_is_missing_or_no_file_keeps_the_run_from_starting():
    assert "there is no file it.txt" in run(FROM_FILE, code=1)["error"]["message"]
    Path("it.txt").mkdir()
    assert "it.txt cannot be read" in run(FROM_FILE, code=1)["error"]["message"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_keeps_the_run_from_starting():
    Path("it.txt").write_text(SECRET)
    Path("it.txt").chmod(0)
    assert "Permission denied" in run(FROM_FILE, code=1)["error"]["message"]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda: Path("home/secrets.key").unlink(), "their key is not at"),
        (lambda: Path("home/secrets.json").write_bytes(Path("home/secrets.json").read_bytes()[:50]), "is damaged"),
    ],
)
def test_a_store_that_cannot_be_opened_keeps_the_run_from_starting(damage, says):
    arclog("secret", "set", "it", stdin=SECRET)
    damage()
    summary = run(one_task("{name: it, kind: secret}", "{kind: noop}"), code=1)
    assert says in summary["error"]["message"]
    assert summary["steps"] == {}


def test_a_child_whose_secret_is_missing_fails_and_its_parent_hears_why():
    Path("child.yaml").write_text(FROM_FILE)
    summary = run("metadata: {name: p}\nworkflow: [{step: call, tool: {kind: playbook, file: child.yaml}}]", code=1)
    assert summary["error"]["kind"] == "child"
    assert "there is no file it.txt" in summary["error"]["message"]


# --- what can be wrong while it runs ----------------------------------------------------------------------------------


def test_a_secret_that_goes_away_while_the_run_is_on_is_an_outcome_of_its_task():
    Path("it.txt").write_text(SECRET)
    text = """\
metadata: {name: p}
keychain: [{name: it, kind: file, path: it.txt}]
workflow:
  - step: start
    tool:
      - {name: away, kind: shell, command: rm it.txt}
      - name: use
        kind: noop
        data: "{{ keychain.it.value }}"
        spec: {policy: {rules: [{when: "{{ outcome.error.kind == 'auth' }}", then: {do: continue, set_ctx: {why: "{{ outcome.error }}"}}}]}}
"""
    why = run(text)["ctx"]["why"]
    assert (why["code"], why["retryable"]) == ("KEYCHAIN", False)
    assert "keychain entry it (kind file): there is no file it.txt" in why["message"]


def test_a_rotated_secret_is_used_from_the_next_attempt_on_and_neither_is_seen():
    Path("it.txt").write_text("the-old-secret")
    text = """\
metadata: {name: p}
keychain: [{name: it, kind: file, path: it.txt}]
workflow:
  - step: start
    tool:
      name: use
      kind: shell
      command: [sh, -c, 'echo "$IT"; printf the-new-secret > it.txt; [ "$IT" = the-new-secret ] && cat old.txt']
      env: {IT: "{{ keychain.it.value }}"}
      spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3, delay: 0}}]}}
"""
    Path("old.txt").write_text("the-old-secret\n")
    summary = run(text)
    assert summary["result"]["stdout"] == "[redacted:it]\n[redacted:it]\n"
    output = arclog("events", "last", "--json").stdout + arclog("logs", "last", "--json").stdout
    assert "the-old" not in output
    assert "the-new-secret" not in output.replace("printf the-new-secret", "").replace("= the-new-secret", "")


class TokenServer(BaseHTTPRequestHandler):
    """Unwell at first."""

    answers: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status = self.answers.pop(0)
        body = json.dumps({"access_token": "the-token-1234", "token_type": "Bearer", "expires_in": 600}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(("answers", "code"), [([500, 503, 200], 0), ([401], 1)])
def test_a_token_server_that_is_unwell_is_asked_again_and_one_that_refuses_is_not(answers, code):
    TokenServer.answers = list(answers)
    with ThreadingHTTPServer(("127.0.0.1", 0), TokenServer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        text = f"""\
metadata: {{name: p}}
keychain: [{{name: crm, kind: oauth2, token_url: "http://127.0.0.1:{server.server_port}/t", client_id: me, client_secret: {{env: CS}}}}]
workflow:
  - step: start
    tool:
      - name: use
        kind: noop
        data: "{{{{ keychain.crm.header }}}}"
        spec: {{policy: {{rules: [{{when: "{{{{ outcome.status == 'error' and outcome.error.retryable }}}}", then: {{do: retry, attempts: 5, delay: 0}}}}, {{when: "{{{{ outcome.status == 'error' }}}}", then: {{do: fail}}}}]}}}}
      - {{name: again, kind: noop, data: "{{{{ keychain.crm.token | length }}}} {{{{ use.data }}}}"}}
"""
        try:
            summary = run(text, code=code, CS=SECRET)
        finally:
            server.shutdown()
            thread.join()
    assert TokenServer.answers == []
    if code:
        assert "answered 401" in summary["error"]["message"]
    else:
        assert summary["result"] == "14 Bearer [redacted:crm]"
    assert "hunter2" not in json.dumps(summary)


def test_a_secret_that_a_task_finds_by_itself_is_hidden_too():
    """It was not asked for by name; it is declared, so it is known."""
    Path("it.txt").write_text(SECRET)
    text = one_task("{name: it, kind: file, path: it.txt}", "{kind: shell, command: cat it.txt}")
    assert run(text)["result"]["stdout"] == "[redacted:it]"


def test_a_secret_manager_gives_a_secret_that_nobody_sees_and_the_doctor_knows_it():
    text = one_task(
        "{name: api, kind: secret_manager}",
        "{kind: shell, command: [sh, -c, 'echo $TOKEN'], env: {TOKEN: '{{ keychain.api.value }}'}}",
    )
    with running(VaultServer()) as vault:
        env = {"ARCLOG_SECRETS_MANAGER": "vault", "ARCLOG_SECRETS_MANAGER_URL": vault.url, "VAULT_TOKEN": "root-token"}
        failed = run(text, code=1, **env)
        assert failed["error"]["kind"] == "auth"
        assert "Vault has no secret default/default/local/api" in failed["error"]["message"]
        vault.kept["default/api"] = [{"value": SECRET}]
        ended = run(text, **env)
        for words in (("events", ended["execution_id"], "--json"), ("logs", ended["execution_id"])):
            output = arclog(*words, **env).stdout
            assert SECRET not in output
            assert "[redacted:api]" in output
        healthy = arclog("doctor", **env)
        assert (healthy.returncode, "Vault answers, and knows this process" in healthy.stdout) == (0, True)
        refused = arclog("doctor", **{**env, "VAULT_TOKEN": "s.wrong-token"})
        assert refused.returncode != 0
        assert "answered 403" in refused.stdout
        assert "s.wrong-token" not in refused.stdout + refused.stderr
    gone = run(text, code=1, **env)
    assert "cannot be reached" in gone["error"]["message"]
