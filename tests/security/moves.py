"""How an attack is carried out, by the first key of its entry in `attacks/*.yaml`. Each move returns what it got; '' is nothing.

`{home}`, `{data}`, `{port}`, `{canary}` and the like in a text of an entry are filled in for the site.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shutil
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from arclog.model.config.settings import Settings
from tests.integration.sandbox.wheels import source_package
from tests.security import bombs
from tests.security.hostile_build import hostile_build
from tests.security.site import ALLOWED, CANARY, DELAY_S, NOOP, NUMBER, Site, overload

_FOLDER = Path(__file__).with_name("attacks")
#: What a run that was stopped may be.
_STOPPED = "FAILED"
_PLACE = re.compile(r"\{(home|data|port|pid|canary|number|allowed|victim_run|victim_plan|victim_ref)\}")
#: Encodings in which a secret is known again.
_CODED = (
    CANARY,
    base64.b64encode(CANARY.encode()).decode(),
    CANARY.encode().hex(),
)

Attack = dict[str, Any]


@cache
def attacks() -> tuple[Attack, ...]:
    """All of them, by class; `class` and `name` are unique together."""
    return tuple(
        {"class": path.stem, **entry}
        for path in sorted(_FOLDER.glob("*.yaml"))
        for entry in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        if os.geteuid() == 0 or not entry.get("root")
    )


def carried_out(site: Site, attack: Attack) -> str:
    """What an attack got, or what it did to the server; '' when it was stopped."""
    site.harm()
    site.trap.reached.clear()
    move = next(name for name in attack if name in MOVES)
    try:
        got = MOVES[move](site, filled(site, attack))
    except Exception as problem:
        got = f"{type(problem).__name__}: {problem}" if site.alive() else ""
    if site.trap.reached:
        got = ", ".join(filter(None, (got, f"reached the forbidden address: {site.trap.reached[0]}".rstrip(": "))))
    return ", ".join(filter(None, (got, site.harm(attack.get("neighbour_s", DELAY_S)))))


def filled(site: Site, value: Any) -> Any:
    """The entry with the site's places filled in."""
    if isinstance(value, str):
        return _PLACE.sub(lambda found: place(site, found[1]), value)
    if isinstance(value, dict):
        return {key: filled(site, item) for key, item in value.items()}
    return [filled(site, item) for item in value] if isinstance(value, list) else value


def place(site: Site, name: str) -> str:
    places: dict[str, Callable[[], str]] = {
        "home": lambda: str(site.home),
        "data": lambda: str(site.folder / "data"),
        "port": lambda: str(site.trap.port),
        "pid": lambda: str(site.pid),
        "canary": lambda: CANARY,
        "number": lambda: NUMBER,
        "allowed": lambda: ALLOWED,
        "victim_run": lambda: victim(site)["id"],
        "victim_plan": lambda: victim(site)["plan"],
        "victim_ref": lambda: victim(site)["ref"],
    }
    return places[name]()


_VICTIM_PLAYBOOK = f"""
metadata: {{name: private}}
workflow:
  - step: start
    tool: {{kind: python, code: "result = ['{CANARY}'] * 50000"}}
    next: {{arcs: [{{step: gate}}]}}
  - step: gate
    tool: {{kind: approval, approvers: [admin]}}
"""
_victims: dict[str, dict[str, str]] = {}


def victim(site: Site) -> dict[str, str]:
    """A run of the other tenant that waits for an admin's approval, its plan and a stored result of it."""
    cached = _victims.get(site.url)
    if cached is None:
        client = site.client("victim", "engineer")
        run = client.post("/api/executions", json={"playbook": _VICTIM_PLAYBOOK}).json()["execution_id"]
        ref = plan = ""
        for _ in range(200):
            text = client.get(f"/api/executions/{run}/events", params={"limit": 1000}).text
            if match := re.search(r"noetl://[^\"\\]+", text):
                ref = match[0]
            if match := re.search(r'"plan(?:_digest)?": ?"([0-9a-f]{64})"', text):
                plan = match[1]
            if "approval" in text and ref:
                break
            threading.Event().wait(0.1)
        cached = _victims[site.url] = {"id": run, "ref": ref, "plan": plan or "0" * 64}
    return cached


# --- moves ----------------------------------------------------------------------------------------------------------


def run(site: Site, attack: Attack) -> str:
    """A playbook of mallory's. `must: FAILED` (default any end), `never`: texts that must be nowhere in what it left, `visits`: how
    often the address that is allowed is reached, which shows that something was sent.
    """
    playbook = attack["run"]
    if isinstance(playbook, dict):
        playbook = bombs.MADE[playbook["made"]](**{key: value for key, value in playbook.items() if key != "made"})
    for name, value in attack.get("credentials", {}).items():
        answer = site.client("mallory", "engineer").put(f"/api/credentials/{name}", json={"value": value})
        assert answer.status_code == 200, answer.text
    site.trap.allowed = 0
    done = site.run(playbook, role=attack.get("role", "engineer"), most_s=attack.get("most_s"))
    if "refused" in done:
        return "" if 400 <= done["refused"] < 500 else f"HTTP {done['refused']}: {done['text'][:100]}"
    if done.get("endless"):
        return "" if attack.get("may_be_endless") else "it does not end"
    state = done["summary"].get("state") or done["summary"].get("status")
    if attack.get("must") and state != attack["must"]:
        return f"the run ended as {state}"
    if site.trap_allowed_less_than(attack.get("visits", 0)):
        return "nothing was sent, so that nothing was shown"
    return leaked(attack, done["events"] + done["logs"] + json.dumps(done["summary"])) or changed(site, attack)


def runs(site: Site, attack: Attack) -> str:
    """Many runs of one playbook of mallory's at a time, for `for_s`; then they are cancelled. The watch over the neighbour says what
    they did.
    """
    options = attack["runs"]
    engineer = site.client("mallory", "engineer")
    playbook = bombs.MADE[options["made"]](options["runs_work"])
    started: list[str] = []
    try:
        for _ in range(options["count"]):
            answer = engineer.post("/api/executions", json={"playbook": playbook})
            if answer.status_code == 201:
                started.append(answer.json()["execution_id"])
            elif not 400 <= answer.status_code < 500:
                return f"HTTP {answer.status_code}: {answer.text[:100]}"
        threading.Event().wait(options["for_s"])
        site.wait_for_neighbour()
        if any(engineer.get(f"/api/executions/{run_id}/head").json().get("ended") for run_id in started):
            return "a run ended, so that nothing was shown"
    finally:
        # Requests about such a run wait for its decisions, so they are sent together.
        with ThreadPoolExecutor(len(started) or 1) as pool:
            list(
                pool.map(
                    lambda run_id: engineer.post(f"/api/executions/{run_id}/cancel", json={"reason": "done"}), started
                )
            )
    return ""


def leaked(attack: Attack, text: str) -> str:
    forbidden = attack.get("never", list(_CODED))
    for word in forbidden:
        if word in text:
            return f"got {word[:60]}"
    return ""


def changed(site: Site, attack: Attack) -> str:
    """What was done to files: `absent` must not be there; `intact` must be a database still."""
    for path in attack.get("absent", ()):
        if Path(path).exists():
            shutil.rmtree(path) if Path(path).is_dir() else Path(path).unlink()
            return f"wrote {path}"
    for path in attack.get("intact", ()):
        if not Path(path).read_bytes()[:16].startswith(b"SQLite format 3"):
            return f"destroyed {path}"
    return ""


def request(site: Site, attack: Attack) -> str:
    """One request or several. `status`: the answers that mean that it was refused."""
    request = attack["request"]
    tenant, role = (
        request.get("as", "mallory/engineer").split("/") if request.get("as") != "anybody" else ("anybody", "")
    )
    client = site.client(tenant, role)
    body = request.get("body")
    if isinstance(body, dict) and "made" in body:
        body = bombs.MADE[body["made"]](**{key: value for key, value in body.items() if key != "made"})
    content = body if isinstance(body, bytes | str) or body is None else json.dumps(body)
    headers = {"content-type": "application/json", **request.get("headers", {})}
    answers = [
        client.request(request.get("method", "GET"), request["path"], content=content, headers=headers)
        for _ in range(request.get("times", 1))
    ]
    for answer in answers:
        if answer.status_code not in attack["status"]:
            return f"HTTP {answer.status_code}: {answer.text[:80]}"
    return leaked(attack, "".join(answer.text for answer in answers))


def raw(site: Site, attack: Attack) -> str:
    """Bytes on a connection. `status`: those of the first line that mean that it was refused; 0 is a closed connection."""
    host, _, port = site.url.rpartition("//")[2].rpartition(":")
    text = attack["raw"]
    for name, count in attack.get("filled", {}).items():
        text = text.replace(f"<{name}>", name * count)
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(text.replace("\n", "\r\n").encode("latin-1"))
        with suppress(OSError):
            answer = connection.recv(65536).decode("latin-1")
    status = int(answer.split()[1]) if answer.startswith("HTTP/") else 0
    return "" if status in attack["status"] else f"HTTP {status}"


def streams(site: Site, attack: Attack) -> str:
    """Many event streams of one key; then others ask."""
    theirs = victim(site)["id"]
    host, _, port = site.url.rpartition("//")[2].rpartition(":")
    own = _VICTIM_PLAYBOOK.replace("name: private", "name: own")
    answer = site.client("mallory", "engineer").post("/api/executions", json={"playbook": own})
    assert answer.status_code == 201, answer.text
    mine = answer.json()
    key = site.keys["mallory", "viewer"]
    head = f"GET /api/executions/{mine['execution_id']}/events/stream HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n"
    held = []
    try:
        for _ in range(attack["streams"]):
            with suppress(OSError):
                held.append(socket.create_connection((host, int(port)), timeout=20))
                held[-1].sendall(head.encode())
        for connection in held:
            with suppress(OSError):
                connection.recv(1)
        for tenant, role, method, path, body in (
            ("victim", "viewer", "GET", f"/api/executions/{theirs}", None),
            (
                "victim",
                "engineer",
                "POST",
                "/api/executions",
                {"playbook": "metadata: {name: a}\nworkflow: [{step: start, tool: {kind: noop}}]\n"},
            ),
            ("mallory", "operator", "POST", f"/api/executions/{mine['execution_id']}/cancel", {"reason": "enough"}),
            ("victim", "worker", "POST", "/api/worker/heartbeat", {"worker_id": "w", "held": []}),
        ):
            answer = site.client(tenant, role).request(method, path, json=body)
            if answer.status_code not in (200, 201):
                return f"{tenant} is shut out of {path.partition('?')[0]}: HTTP {answer.status_code}"
    finally:
        for connection in held:
            connection.close()
    return ""


def modes(site: Site, attack: Attack) -> str:
    """Files that other users of the machine may open."""
    problems = []
    for path in (site.home, *site.home.rglob("*")):
        with suppress(OSError):
            if stat.S_IMODE(path.stat().st_mode) & 0o077 and (path == site.home or attack["modes"] == "all"):
                problems.append(f"{path.name} {stat.S_IMODE(path.stat().st_mode):o}")
    return ", ".join(problems[:3])


def forged(site: Site, attack: Attack) -> str:
    """A worker's key speaks for what another worker holds."""
    engineer, worker = site.client("mallory", "engineer"), site.client("mallory", "worker")
    playbook = "metadata: {name: a}\nworkflow: [{step: start, spec: {pool: apart}, tool: {kind: noop}}]\n"
    run = engineer.post("/api/executions", json={"playbook": playbook}).json()["execution_id"]
    try:
        caller = {"worker_id": "honest", "kinds": ["noop"], "pools": ["apart"]}
        claimed = worker.post("/api/worker/claim", json={"worker": caller, "limit": 1, "wait_s": 20}).json()["commands"]
        command = claimed[0]
        ids = {key: command[key] for key in ("execution_id", "command_id", "fence")}
        reports = {
            "zero": {"worker_id": "honest", **ids, "n": 0, "events": []},
            "other": {"worker_id": "liar", **ids, "n": 1, "events": []},
            "fence": {"worker_id": "honest", **ids, "fence": ids["fence"] + 1, "n": 1, "events": []},
        }
        if attack["forged"] == "plan":
            stranger = site.client("victim", "worker")
            answer = stranger.get(f"/api/worker/plans/{command['plan']}")
            return "" if answer.status_code in (403, 404) else f"HTTP {answer.status_code}: a plan of another tenant"
        if attack["forged"] == "events":
            event = {
                "event_type": "call.done",
                "execution_id": str(ids["execution_id"]),
                "payload": {"command_id": str(ids["command_id"]), "result": "forged"},
                "worker_id": "liar",
            }
            answer = worker.post("/api/events", json=event)
        else:
            answer = worker.post("/api/worker/report", json=reports[attack["forged"]])
        return "" if 400 <= answer.status_code < 500 else f"HTTP {answer.status_code}: {answer.text[:80]}"
    finally:
        engineer.post(f"/api/executions/{run}/cancel", json={"reason": "done"})


def denials(site: Site, attack: Attack) -> str:
    """Requests that are denied; the audit must not grow with them."""
    client = site.client("mallory", "viewer")
    began = time.monotonic()
    for _ in range(attack["denials"]):
        client.post("/api/executions", json={"playbook": "x"})
    page = site.client("mallory", "admin").get("/api/audit", params={"decision": "denied", "limit": 1000}).json()
    kept, minutes = len(page["entries"]), int((time.monotonic() - began) // 60) + 2
    # A caller has `auth.max_denials` entries for each minute and one for the rest; a busy machine takes several minutes.
    most = (Settings().integer("auth.max_denials") + 1) * minutes
    return "" if kept <= most else f"{kept} rows for {attack['denials']} requests"


def approval(site: Site, attack: Attack) -> str:
    """Somebody approves who is none of the approvers."""
    engineer = site.client("mallory", "engineer")
    gate = f"{{step: gate, tool: {{kind: approval, approvers: [{attack['approval']}]}}}}"
    playbook = f"metadata: {{name: gated}}\nworkflow: [{gate}]\n"
    run = engineer.post("/api/executions", json={"playbook": playbook}).json()["execution_id"]
    try:
        for _ in range(100):
            if "approval" in engineer.get(f"/api/executions/{run}/why").text:
                break
            threading.Event().wait(0.1)
        answer = site.client("mallory", attack["role"]).post(f"/api/executions/{run}/approve", json={"data": {}})
        return "" if answer.status_code == 403 else f"HTTP {answer.status_code}"
    finally:
        engineer.post(f"/api/executions/{run}/cancel", json={"reason": "done"})


def hostile(site: Site, attack: Attack) -> str:
    """The hostile task of `hostile.py`, as a task of mallory's beside one of the victim."""
    sleeping = "metadata: {name: other}\nworkflow: [{step: start, tool: {kind: shell, command: 'echo $ARCLOG_SCRATCH; exec sleep 100'}}]\n"
    neighbour = site.client("victim", "engineer")
    other = neighbour.post("/api/executions", json={"playbook": sleeping}).json()["execution_id"]
    try:
        folder = ""
        for _ in range(100):
            if match := re.search(r"/[^\"\\]*arclog-[^\"\\]+", neighbour.get(f"/api/executions/{other}/logs").text):
                folder = match[0]
                break
            threading.Event().wait(0.1)
        at = {**site.prey(), "other_task": folder, "capabilities": 0}
        # A home that is moved away would be the end of the site.
        code = Path(__file__).with_name("hostile.py").read_text() + "\nBY_PROMISE['files'].remove(home_moved_away)\n"
        tool: dict[str, Any] = {"kind": "python", "args": {"at": at}, "code": code}
        if attack["hostile"] == "build":
            tool = built(site, hostile_build(at))
        if attack["hostile"] == "shell":
            code += "import json, sys\nprint(json.dumps(main(json.load(sys.stdin))))\n"
            tool = {
                "kind": "shell",
                "command": [sys.executable, "-I", "-c", code],
                "input": json.dumps(at),
                "parse": "json",
            }
        raw_text = json.dumps(tool).replace("{{", "{ {").replace("{%", "{ %")
        playbook = '{"metadata": {"name": "hostile"}, "workflow": [{"step": "start", "tool": ' + raw_text + "}]}"
        done = site.run(playbook)
        result = done.get("summary", {}).get("result")
        found_all = result.get("json", result) if isinstance(result, dict) else None
        if not isinstance(found_all, dict):
            return f"no answer: {str(done)[:300]}"
        got = [name for name, what in found_all.items() if what]
        if Path(site.home, "planted").exists():
            Path(site.home, "planted").unlink()
            got.append("planted a file in the home")
        return f"{len(got)} of {len(found_all)}: {', '.join(got)}" if got else ""
    finally:
        neighbour.post(f"/api/executions/{other}/cancel", json={"reason": "done"})


_numbers = itertools.count(1)


def built(site: Site, code: str) -> dict[str, Any]:
    """A task that needs a package whose build executes this code; its result is what that leaves in `got`."""
    name = f"hostile{next(_numbers)}"
    source_package(site.packages, name, "1.0", code)
    return {"kind": "python", "requirements": [name], "code": f"import {name}\nresult = {name}.got"}


def build(site: Site, attack: Attack) -> str:
    """A playbook of mallory's with a package that has to be built; `build` is what its build executes. It must end."""
    workflow = [{"step": "start", "tool": built(site, attack["build"])}]
    done = site.run(json.dumps({"metadata": {"name": "built"}, "workflow": workflow}), most_s=attack.get("most_s"))
    if "refused" in done:
        return f"no answer: {done['text'][:300]}"
    if done.get("endless"):
        return "it does not end"
    return leaked(attack, done["events"] + done["logs"] + json.dumps(done["summary"])) or changed(site, attack)


def session(site: Site, attack: Attack) -> str:
    """A request with the cookie of a session that somebody opened. `status`: the answers that mean that it was refused."""
    changes = attack["session"]
    with site.stranger() as client:
        opened = client.post("/api/session", json={"key": site.keys["mallory", "admin"]})
        assert opened.status_code == 201, opened.text
        body = None if "body" not in changes else json.dumps(changes["body"])
        headers = {"content-type": "application/json", **changes.get("headers", {})}
        answer = client.request(changes.get("method", "GET"), changes["path"], content=body, headers=headers)
    return "" if answer.status_code in attack["status"] else f"HTTP {answer.status_code}: {answer.text[:80]}"


def sessions(site: Site, attack: Attack) -> str:
    """Sessions opened with one key; the first must be over when there are too many."""
    with site.stranger() as client:
        cookies = []
        for _ in range(attack["sessions"]):
            answer = client.post("/api/session", json={"key": site.keys["mallory", "viewer"]})
            assert answer.status_code == 201, answer.text
            cookies.append(answer.headers["set-cookie"].partition(";")[0])
            client.cookies.clear()
        for cookie, status in ((cookies[-1], 200), (cookies[0], 401)):
            answer = client.get("/api/me", headers={"cookie": cookie})
            if answer.status_code != status:
                return f"session {cookies.index(cookie) + 1} of {len(cookies)}: HTTP {answer.status_code}"
    return ""


def connections(site: Site, attack: Attack) -> str:
    """Open connections from another address; then others ask."""
    host, _, port = site.url.rpartition("//")[2].rpartition(":")
    held = []
    try:
        for _ in range(attack["connections"]):
            with suppress(OSError):
                held.append(socket.create_connection((host, int(port)), timeout=5, source_address=("127.0.0.3", 0)))
        with site.stranger(timeout=10) as client:
            answer = client.get("/health")
        return "" if answer.status_code == 200 else f"HTTP {answer.status_code}"
    finally:
        for connection in held:
            connection.close()


def again(site: Site, attack: Attack) -> str:
    """A run of mallory's, then requests about what it recorded. `status`: the answers that may come."""
    options = attack["again"]
    engineer = site.client("mallory", "engineer")
    playbook = options.get("run", NOOP)
    if isinstance(playbook, dict):
        playbook = bombs.MADE[playbook["made"]](**{key: value for key, value in playbook.items() if key != "made"})
    started = engineer.post("/api/executions", json={"playbook": playbook})
    assert started.status_code == 201, started.text
    made = [started.json()["execution_id"]]
    until = {"until": "ended", "timeout_s": options.get("after_s", 20)}
    engineer.get(f"/api/executions/{made[0]}/head", params=until)
    try:
        for _ in range(options.get("times", 1)):
            answer = site.client("mallory", options.get("as", "engineer")).request(
                options.get("method", "GET"), f"/api/executions/{made[0]}/{options['then']}", json=options.get("body")
            )
            if answer.status_code not in attack["status"]:
                return f"HTTP {answer.status_code}: {answer.text[:80]}"
            if answer.status_code == 201:
                made.append(answer.json()["execution_id"])
    finally:
        for run_id in made:
            engineer.post(f"/api/executions/{run_id}/cancel", json={"reason": "done"})
    return ""


_STEP = """
metadata: {name: ahead}
workflow: [{step: start, tool: {kind: sqlite, database: "<database>", transaction: false, command: "<command>"}}]
"""
#: Makes a database in write-ahead mode.
_MADE = (
    "PRAGMA journal_mode = wal; CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) "
    "SELECT i, hex(zeroblob(100)) AS b FROM n"
)
#: Writes its log, and then reads more pages than the cache holds for some seconds.
_READ = (
    "PRAGMA cache_size = 10; UPDATE t SET b = b || 'x'; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
    "WHERE i < 1000) SELECT sum(length(t.b)) AS total FROM n, t"
)


def truncated(site: Site, attack: Attack) -> str:
    """A file of a database in write-ahead mode is truncated, again and again, while a task of mallory's reads the database. Another
    task of mallory's could do so where tasks may write to the folder. `optional`: the file need not exist.
    """
    database = Path(site.folder, "data", "ahead.db")
    log = Path(f"{database}-wal")
    step = _STEP.replace("<database>", str(database))
    engineer = site.client("mallory", "engineer")
    try:
        made = site.run(step.replace("<command>", _MADE))
        assert made["summary"]["state"] == "COMPLETED", made
        answer = engineer.post("/api/executions", json={"playbook": step.replace("<command>", _READ)})
        assert answer.status_code == 201, answer.text
        run_id, count, end = answer.json()["execution_id"], 0, time.monotonic() + 60 * overload()
        while not engineer.get(f"/api/executions/{run_id}/head").json().get("ended"):
            if time.monotonic() > end:
                return "it does not end"
            with suppress(FileNotFoundError):
                if count or log.stat().st_size:
                    os.truncate(f"{database}{attack['truncated']}", 0)
                    count += 1
            threading.Event().wait(0.02)
        return "" if count or attack.get("optional") else "nothing was truncated, so that nothing was shown"
    finally:
        for path in (database, log, Path(f"{database}-shm")):
            path.unlink(missing_ok=True)


MOVES: dict[str, Callable[[Site, Attack], str]] = {
    each.__name__: each
    for each in (
        run,
        runs,
        request,
        raw,
        streams,
        modes,
        forged,
        denials,
        approval,
        hostile,
        build,
        session,
        sessions,
        connections,
        again,
        truncated,
    )
}
