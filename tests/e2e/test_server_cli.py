"""Every command says the same of a server's runs as of those in a home."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from arclog.cli.main import command

ARCLOG = [sys.executable, "-m", "arclog.cli.main"]
PATIENCE_S = 60

HELLO = """\
metadata: {name: hello}
workload: {name: world}
workflow:
  - step: start
    tool: {kind: shell, command: [echo, "hello {{ workload.name }}"]}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: [1, 2, 3], iterator: n}
    tool: {kind: noop, data: "{{ iter.n * 2 }}"}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, data: {by: "{{ workload.name }}", done: true}}
"""
FAILING = """\
metadata: {name: failing}
workflow:
  - step: start
    tool:
      - name: boom
        kind: python
        code: |
          raise KeyError("x")
"""
INVALID = "metadata: {name: invalid}\nworkflow:\n  - step: start\n    tool: {kind: nosuch}\n    colour: red\n"
CALLER = "metadata: {name: caller}\nworkflow: [{step: start, tool: {kind: playbook, file: sub/child.yaml}}]\n"
CHILD = "metadata: {name: child}\nworkflow: [{step: start, tool: {kind: noop, data: 7}}]\n"
STORING = (
    "metadata: {name: storing}\nworkflow: [{step: start, tool: {kind: python, code: 'result = list(range(20_000))'}}]\n"
)
WAITING = """\
metadata: {name: waiting}
workflow:
  - step: start
    tool: {kind: noop, data: 1}
    next: {arcs: [{step: hold}]}
  - step: hold
    tool: {kind: wait, signal: go}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, data: 2}
"""
FILES = {
    "hello.yaml": HELLO,
    "failing.yaml": FAILING,
    "invalid.yaml": INVALID,
    "caller.yaml": CALLER,
    "sub/child.yaml": CHILD,
    "broken.yaml": CALLER.replace("sub/child.yaml", "invalid.yaml"),
    "storing.yaml": STORING,
    "waiting.yaml": WAITING,
    "daily.yaml": HELLO.replace("name: hello", "name: daily, path: reports/daily"),
    "daily2.yaml": HELLO.replace("name: hello", "name: daily, path: reports/daily").replace("* 2", "* 3"),
}

#: What one command line came to.
Output = tuple[int, str, str]


class Going:
    """A command in a process of its own that has said its first line."""

    def __init__(self, words: list[str]) -> None:
        # Unbuffered: what is behind the first line stays in the pipe.
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        _GOING.append(self.process)
        assert self.process.stdout is not None
        self.first = self.process.stdout.readline().decode()

    def ended(self) -> Output:
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out.decode(), err.decode()


_GOING: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _nothing_goes_on() -> Iterator[None]:
    """Whatever a test started ends with it."""
    yield
    while _GOING:
        process = _GOING.pop()
        process.kill()
        process.communicate()


class Place:
    """Where commands find their runs."""

    def __init__(self, name: str, *where: str) -> None:
        self.name = name
        self._where = where

    def words(self, *words: str) -> list[str]:
        return [*ARCLOG, *words, *self._where]

    def __call__(self, *words: str) -> Output:
        """A command, in this process: a hundred starts of another would take a minute."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        log = logging.getLogger("arclog")
        before = log.handlers, log.propagate
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = command([*words, *self._where])
        finally:
            log.handlers, log.propagate = before
        texts = [stream.detach().getvalue().decode() for stream in (out, err)]
        return code, texts[0], texts[1]

    def json(self, *words: str) -> Any:
        code, out, err = self(*words, "--json")
        assert code == 0, err
        return json.loads(out)

    def started(self, *words: str) -> Going:
        return Going(self.words(*words))


@pytest.fixture(autouse=True)
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with playbooks, and an environment in which nothing is set."""
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("ARCLOG_") or name in ("NO_COLOR", "PYTHONUNBUFFERED"):
            monkeypatch.delenv(name)
    (tmp_path / "sub").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def up(home: str, port: str = "0") -> tuple[Going, str]:
    """A server with a worker, in a process of its own, and its address."""
    server = Going([*ARCLOG, "up", "--home", home, "--port", port, "--json"])
    assert server.first, "the server did not start"
    return server, json.loads(server.first)["url"]


def stopped(server: Going) -> int:
    server.process.send_signal(signal.SIGTERM)
    return server.ended()[0]


@pytest.fixture
def places(where: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Place, Place]]:
    # On a slow machine a start may be handed in by itself here, and with the end there: always by itself, then.
    monkeypatch.setenv("ARCLOG_WORKER_STARTED_FLUSH_MS", "0")
    server, url = up("served")
    yield Place("here", "--home", "here"), Place("there", "--server", url)
    assert stopped(server) == 0


_PLAIN = (
    (re.compile(r"in here|at http://127\.0\.0\.1:\d+"), "<PLACE>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<UUID>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<HASH>"),
    (re.compile(r"\bark_[0-9a-z]{16}_[0-9A-Za-z]{43}\b"), "<KEY>"),
    (re.compile(r"(?<=\")[0-9a-z]{16}(?=\")|\b[0-9a-z]{16}(?=  |\))"), "<KEY ID>"),
    (re.compile(r'"signal_id":\s*"[0-9a-f-]{36}"'), '"signal_id":"<MADE UP>"'),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?"), "<TIME>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?"), "<TIME>"),
    (re.compile(r"(?<![\w.])\d+(\.\d+)? ?(ms|µs|s)\b"), "<TOOK>"),
    (re.compile(r"\b\d\d-\d\d \d\d:\d\d\b"), "<TIME>"),
    # A run may go on before anybody has looked whether it waits for somebody.
    (re.compile(r"^arclog: +(step .* waits for .*|arclog (signal|approve|reject) .*)\n", re.MULTILINE), ""),
    (re.compile(r'"took_ms":\s*\d+'), '"took_ms":0'),
    (re.compile(r'"(duration_ms|durationMs)":\s*[\d.]+'), '"<TOOK>"'),
    (re.compile(r"(worker|\"worker_id\":\s*)\"?[\w.-]+-\d+-[0-9a-f]{6}\"?"), "<WORKER>"),
    (re.compile(r" +"), " "),
)


def normal(output: Output) -> Output:
    """Without what differs from run to run: ids (numbered as they appear), times, places."""
    code, *texts = output
    ids: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return ids.setdefault(found[0], f"<ID{len(ids)}>")

    plain = []
    for original in texts:
        text = original
        for pattern, word in _PLAIN:
            text = pattern.sub(word, text)
        plain.append(re.sub(r"\b\d{17,19}\b", numbered, text))
    return code, plain[0], plain[1]


def both(places: tuple[Place, Place], work: Callable[[Place], Output]) -> Output:
    """What comes out here and there is the same; that is what it was."""
    local, remote = (normal(work(place)) for place in places)
    # Line by line, so that a difference is shown by itself.
    assert [remote[0], *"".join(remote[1:]).split("\n")] == [local[0], *"".join(local[1:]).split("\n")]
    assert remote == local
    return local


def outputs_of(places: tuple[Place, Place], *lines: str) -> list[Output]:
    return [both(places, lambda place, line=line: place(*line.split())) for line in lines]  # type: ignore[misc]  # a default


def test_a_run_and_how_it_is_looked_at(places: tuple[Place, Place]) -> None:
    ran, *looks = outputs_of(
        places,
        "run hello.yaml --set name=Ada",
        "run hello.yaml --quiet",
        "run hello.yaml --json",
        "list",
        "list --state completed --limit 2 --json",
        "list --state failed",
        "show last",
        "show last --json",
        "status last",
        "why last --json",
        "state last",
        "state last --at 0 --json",
        "state last --at 100000",
    )
    assert ran[0] == 0
    assert "hello completed" in ran[1]
    assert {code for code, _, _ in looks} == {0}


def test_the_events_and_logs_of_a_run(places: tuple[Place, Place]) -> None:
    outputs = outputs_of(
        places,
        "run hello.yaml",
        "events last",
        "events last --json",
        "events last --type step.done --after 5 --json",
        "events last --follow",
        "events last --dialect lifecycle",
        "events last --dialect run --json",
        "logs last",
        "logs last --json",
        "logs last --grep world --step start --stream stdout",
        "logs last --step nosuch",
    )
    assert [code for code, _, _ in outputs] == [0] * 10 + [2]


def test_what_a_run_that_has_ended_can_be_told(places: tuple[Place, Place]) -> None:
    outputs = outputs_of(
        places, "run hello.yaml", "cancel last", "pause last --json", "resume last", "retry last", "gc --dry-run"
    )
    assert [code for code, _, _ in outputs] == [0, 2, 2, 0, 0, 0]


def test_a_run_that_fails(places: tuple[Place, Place]) -> None:
    ran, *_ = outputs_of(
        places, "run failing.yaml", "run failing.yaml --json", "why last", "show last", "list --state failed"
    )
    assert ran[0] == 1
    assert "KeyError" in ran[1]
    assert "failing.yaml:8" in ran[1]


def test_a_playbook_that_cannot_run_is_shown_with_its_line(places: tuple[Place, Place]) -> None:
    plain, as_json, called = outputs_of(places, "run invalid.yaml", "run invalid.yaml --json", "run broken.yaml")
    assert plain[0] == as_json[0] == called[0] == 2
    assert "invalid.yaml:4:18" in plain[2]
    assert "colour: red" in plain[2]
    assert "invalid.yaml:4:18" in called[2]


def test_called_files_are_sent_along(places: tuple[Place, Place]) -> None:
    (ran,) = outputs_of(places, "run caller.yaml --json")
    assert json.loads(ran[1])["result"] == 7


def test_stored_results(places: tuple[Place, Place], where: Path) -> None:
    outputs_of(places, "run storing.yaml", "result list last", "result list last --json")

    def ref(place: Place) -> str:
        ref: str = place.json("result", "list", "last")[0]["ref"]
        return ref

    both(places, lambda place: place("result", "show", ref(place)))
    both(places, lambda place: place("result", "show", ref(place), "--json"))
    whole = both(places, lambda place: place("result", "get", ref(place)))
    assert whole[1].startswith("0\n1\n2\n")
    assert both(places, lambda place: place("result", "get", ref(place), "--range", "2-5"))[1] == "1\n2\n"
    both(places, lambda place: place("result", "save", ref(place), f"{place.name}.out", "--quiet"))
    assert (where / "there.out").read_bytes() == (where / "here.out").read_bytes() != b""
    unknown = f"noetl://execution/380452616754167808/result/start/{'0' * 64}"
    outputs_of(places, f"result show {unknown}", f"result get {unknown}", "result get noetl://execution/../x")


def test_the_catalog(places: tuple[Place, Place]) -> None:
    outputs = outputs_of(
        places,
        "catalog register daily.yaml",
        "catalog register daily.yaml",
        "catalog register daily2.yaml --json",
        "catalog register invalid.yaml",
        "catalog list",
        "catalog list --json",
        "catalog show reports/daily@1",
        "catalog show reports/daily --all",
        "catalog diff reports/daily",
        "run reports/daily",
        "run reports/daily@1 --json",
        "run reports/daly",
        "catalog archive reports/daily",
        "run reports/daily",
        "catalog list",
        "catalog archive reports/daily --undo",
    )
    assert [code for code, _, _ in outputs] == [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2, 0, 0]


def test_versions_that_need_files_are_compared(places: tuple[Place, Place], where: Path) -> None:
    """A server compares the plans that it stored; the files beside the playbooks are not needed any more."""
    for name, script in (("report", "echo 1"), ("report", "echo 2"), ("copy", "echo 2")):
        (where / "a.sh").write_text(script)
        text = f"metadata: {{name: {name}}}\nworkflow: [{{step: a, tool: {{kind: shell, file: a.sh}}}}]\n"
        (where / "report.yaml").write_text(text)
        outputs_of(places, "catalog register report.yaml")
    (where / "a.sh").unlink()
    outputs = outputs_of(
        places,
        "diff report@1 report@2",
        "diff report@1 report@2 --json",
        "diff report@2 copy@1 --json",
        "diff report@1 report@7",
        "diff report@1 other@1",
        "catalog diff report@1 2 --json",
    )
    assert [code for code, _, _ in outputs] == [1, 1, 1, 2, 2, 0]
    assert "~ step a" in outputs[0][1]
    assert json.loads(outputs[1][1])["net"]["steps_changed"] == ["a"]
    copied = json.loads(outputs[2][1])
    assert (copied["net"], copied["settings"]) == (None, ["name"])
    assert json.loads(outputs[5][1])["net"]["steps_changed"] == ["a"]


def test_what_a_run_is_told(places: tuple[Place, Place]) -> None:
    def story(place: Place) -> Output:
        run = place.started("run", "waiting.yaml")
        lines: list[str] = []
        for words in (
            "why last",
            "pause last --signal-id p --reason lunch",
            "pause last --signal-id p --reason lunch",
            "status last",
            "list --state running",
            'signal last UPDATE_PARAMS --data {"a":1}',
            "skip last hold",
            "retry last end",
            "approve last",
            "show last",
            "signal last RESUME",
            'signal last go --data {"n":2} --json --signal-id g',
        ):
            code, out, err = place(*words.split())
            lines.append(f"{words}: {code}\n{out}{err}")
        code, out, err = run.ended()
        # Whether a pause is seen depends on when one looks.
        shown = [line for line in out.splitlines(keepends=True) if not line.startswith("‖")]
        return code, "".join([*lines, run.first, *shown]), err

    code, output, _ = both(places, story)
    assert code == 0
    assert "waiting completed" in output
    assert "SKIP_STEP needs a reason" in output


def test_a_run_is_cancelled(places: tuple[Place, Place]) -> None:
    def story(place: Place) -> Output:
        run = place.started("run", "waiting.yaml")
        code, out, err = place("cancel", "last", "--reason", "enough")
        ran, rest, errors = run.ended()
        again = place("cancel", "last")
        return ran, f"{code}{out}{err}{run.first}{rest}{errors}{again}", ""

    assert both(places, story)[0] == 3


def test_what_is_not_there(places: tuple[Place, Place]) -> None:
    outputs = outputs_of(
        places,
        "list",
        "run hello.yaml --quiet",
        "status 380452616754167808",
        "events x",
        "cancel 380452616754167808",
        "run nosuch.yaml",
        "run no/such",
    )
    assert [code for code, _, _ in outputs] == [0, 0, 2, 2, 2, 2, 2]


def test_a_detached_run_goes_on_at_the_server(places: tuple[Place, Place]) -> None:
    local, remote = places
    assert local("run", "hello.yaml", "--detach")[0] == 2
    started = remote.json("run", "waiting.yaml", "--detach")
    assert remote("list", "--state", "running", "--quiet")[1].count(started["execution_id"]) == 1
    code, out, _ = remote("run", "hello.yaml", "-d", "-q")
    assert (code, out.strip().isdigit()) == (0, True)
    followed = remote("events", out.strip(), "--follow", "--json")[1].splitlines()
    assert [json.loads(line)["seq"] for line in followed] == list(range(1, len(followed) + 1))
    # A signal from outside lets the other one go on.
    remote("signal", started["execution_id"], "go")
    assert remote("resume", started["execution_id"])[0] == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_whoever_stops_watching_leaves_the_run_to_the_server(
    places: tuple[Place, Place], number: signal.Signals, code: int
) -> None:
    _, remote = places
    run = remote.started("run", "waiting.yaml")
    run.process.send_signal(number)
    left, _, err = run.ended()
    assert left == code
    (listed,) = remote.json("list")
    assert listed["state"] == "RUNNING"
    assert "detached" in err
    assert f"arclog cancel {listed['execution_id']}" in err
    assert remote("cancel", listed["execution_id"])[0] == 0
    assert remote.json("status", "last")["state"] == "CANCELLED"


def test_on_a_terminal_an_interrupt_detaches(places: tuple[Place, Place]) -> None:
    _, remote = places
    assert on_a_terminal(*remote.words("run", "waiting.yaml"), keys=(("hold", b"\x03"),))[0] == 130
    assert remote.json("status", "last")["state"] == "RUNNING"


def on_a_terminal(*words: str, keys: tuple[tuple[str, bytes], ...]) -> tuple[int, str]:
    """Run in a pseudo-terminal; each key is sent once its text was seen behind the last key."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(words[0], [*words], {**os.environ, "TERM": "xterm"})
    seen, whole, left = b"", b"", list(keys)
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
        whole += chunk
        if left and left[0][0].encode() in seen:
            seen = b""
            os.write(terminal, left.pop(0)[1])
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), whole.decode()


def test_a_server_that_is_killed_and_comes_back_is_followed_without_a_gap(where: Path) -> None:
    server, url = up("served")
    place = Place("there", "--server", url)
    watching = place.started("run", "waiting.yaml")
    started = place.json("status", "last")["execution_id"]
    following = place.started("events", started, "--follow", "--json")
    server.process.kill()
    server.ended()
    again, _ = up("served", url.rpartition(":")[2])
    assert place("signal", started, "go")[0] == 0
    code, rest, err = following.ended()
    assert (code, err) == (0, "")
    seqs = [json.loads(line)["seq"] for line in (following.first + rest).splitlines()]
    assert seqs == list(range(1, len(seqs) + 1))
    assert seqs[-1] >= place.json("events", started, "--type", "playbook.finished")["seq"]
    code, out, _ = watching.ended()
    assert code == 0
    assert "waiting completed" in out
    assert stopped(again) == 0


PRINTING = WAITING.replace("kind: noop, data: 1", "kind: shell, command: [echo, before]").replace(
    "kind: noop, data: 2", "kind: shell, command: [echo, behind]"
)


def test_logs_are_followed_across_a_killed_server(where: Path) -> None:
    (where / "printing.yaml").write_text(PRINTING)
    server, url = up("served")
    place = Place("there", "--server", url)
    watching = place.started("run", "printing.yaml")
    assert watching.first.strip() == "start │ before"
    following = place.started("logs", "last", "--follow", "--json")
    assert json.loads(following.first)["text"] == "before"
    run = place.json("status", "last")["execution_id"]
    server.process.kill()
    server.ended()
    again, _ = up("served", url.rpartition(":")[2])
    assert place("signal", run, "go")[0] == 0
    code, rest, err = following.ended()
    assert (code, [json.loads(line)["text"] for line in rest.splitlines()], err) == (0, ["behind"], "")
    code, out, _ = watching.ended()
    assert (code, out.count("│ before"), out.count("│ behind")) == (0, 0, 1), "each line once; the first was read above"
    assert stopped(again) == 0


def test_the_server_may_be_in_the_environment_and_a_home_wins(
    places: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, remote = places
    url = remote.words()[-1]
    monkeypatch.setenv("ARCLOG_SERVER", url)
    plain = Place("plain")
    assert plain("run", "hello.yaml", "--quiet")[0] == 0
    assert len(plain.json("list")) == len(remote.json("list")) == 1
    assert Place("home", "--home", "elsewhere").json("list") == []
    assert plain("check", "hello.yaml")[0] == 0
    assert not Path(".arclog").exists()


def test_what_is_wrong_with_a_server_is_said(where: Path) -> None:
    nowhere = Place("nowhere", "--server", "http://127.0.0.1:1")
    for line in ("list", "run hello.yaml", "status last"):
        code, out, err = nowhere(*line.split())
        assert (code, out) == (1, "")
        assert "http://127.0.0.1:1 cannot be reached" in err
    code, _, err = nowhere("list", "--json")
    assert json.loads(err)["error"]["kind"] == "ServerUnavailable"
    for line, message in (
        ("list --server nonsense", "is not an address of a server"),
        ("list --server http://x --home y", "use either --home or --server"),
        ("list --server http://127.0.0.1:1 --token-file nosuch", "nosuch cannot be read"),
        ("check hello.yaml --server http://x", "does not take --server"),
    ):
        code, _, err = Place("wrong")(*line.split())
        assert (code, message in err) == (2, True), err


def test_secrets(places: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM", '{"user": "ada", "password": "correct horse"}')
    outputs = outputs_of(
        places,
        "secret list",
        "secret set crm --from-env CRM --scope default/shop --json",
        "secret set crm --from-env CRM --scope default --quiet",
        "secret list",
        "secret list --scope default/shop --json",
        "secret rm crm --scope default/shop",
        "secret rm crm --scope default --json",
        "secret rm crm --scope default",
        "secret set crm --from-env NOSUCH",
        "secret set a/b --from-env CRM --scope default",
        "secret set crm --from-env CRM --scope a/b/c/d",
        "secret list crm",
    )
    assert [code for code, _, _ in outputs] == [0] * 7 + [2] * 5
    assert "correct horse" not in "".join(out + err for _, out, err in outputs)
    remote = places[1]
    assert (
        "default  fields user, password at http://127.0.0.1:" in remote("secret", "set", "crm", "--from-env", "CRM")[1]
    )
    assert remote("secret", "rm", "crm")[1] == "removed crm (default)\n"
    foreign = remote("secret", "set", "crm", "--from-env", "CRM", "--scope", "acme")
    assert (foreign[0], "no tenant 'acme' for this caller" in foreign[2]) == (2, True), "another tenant is not there"


def test_keys_and_what_their_holders_were_granted(places: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first key shuts the door: from then on the one that was made opens it."""
    local, remote = places
    assert remote("audit")[1].startswith("no requests recorded for the server at http://")
    assert remote("key", "list")[1].startswith("no keys at http://")
    made = {place: place("key", "create", "--name", "boss", "--role", "admin") for place in places}
    assert "from now on the server on this home requires a key" in made[local][2]
    assert "from now on the server at http://" in made[remote][2]
    monkeypatch.setenv("ARCLOG_TOKEN", made[remote][1].strip())
    outputs = outputs_of(
        places,
        "key create --name ci --role operator --role viewer --expires 90d --project shop",
        "key create --name late --role viewer --json",
        "key list",
        "key list --json",
        "key revoke nosuch",
        "key create --name x --role admin --expires 0d",
    )
    assert [code for code, _, _ in outputs] == [0, 0, 0, 0, 2, 2]
    assert "<KEY>" in outputs[0][1]
    assert "boss admin default" in outputs[2][1]

    def late(place: Place) -> str:
        key_id: str = place.json("key", "list")[2]["key_id"]
        return key_id

    assert "revoked late" in remote("key", "revoke", late(remote))[1]
    both(places, lambda place: place("key", "revoke", late(place), "--quiet"))
    both(places, lambda place: place("key", "revoke", late(place)))
    assert "is already revoked" in remote("key", "revoke", f"ark_{late(remote)}_{'x' * 43}")[1]
    code, out, _ = remote("audit", "--limit", "3")
    assert (code, len(out.splitlines())) == (0, 3)
    assert "granted  boss (default)  DELETE  /api/keys/{key_id}" in out.splitlines()[-1]
    assert {entry["decision"] for entry in remote.json("audit", "--limit", "1500")} == {"granted"}
    monkeypatch.setenv("ARCLOG_TOKEN", "ark_" + "0" * 16 + "_" + "0" * 43)
    refused = remote("key", "list")
    assert (refused[0], "invalid API key" in refused[2]) == (2, True)
    monkeypatch.delenv("ARCLOG_TOKEN")
    assert "ARCLOG_TOKEN" in remote("audit")[2]
    assert "on a server, it is always the caller's own tenant" in remote("key", "list", "--tenant", "acme")[2]
