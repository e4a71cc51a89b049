"""A worker for arclog without arclog: the standard library and the documented HTTP API, nothing else.

    ARCLOG_TOKEN=ark_... python examples/foreign_worker.py --server http://127.0.0.1:8420

It runs tasks of the kinds `noop`, `shell` and `http`. A worker in another language does the same:

1.  POST /api/worker/claim with `form: wire` gives a command: a step to run, and its next task with the config rendered.
2.  POST /api/events reports what happens, one event after the other: step.enter, task.started, call.done or call.error,
    step.exit. Each answer says what comes next (`next`), whether the pipeline has failed (`error`), and whether the
    command is over (`closed`). Retries, jumps and waits are the server's business.

What can go wrong, and what the worker does:

    no answer           sends the event again: its id was minted before the first send, so it is recorded once
    409                 the command belongs to somebody else by now, or is over: drops the work
    `closed`            the same: a retry is due later, a wait holds no worker, or the run was cancelled
    422                 the event does not fit its place: gives the command up (command.failed) with the reason
    a bug in a tool     gives the command up: another worker tries, a few times
    a large result      stores it first (POST /api/worker/results) and reports its reference
    it is killed        the lease ends, and whoever claims the command next goes on at the task that was under way

docs/foreign-workers.md describes the protocol.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self

#: A result that takes more bytes than this is stored outside the log; the server refuses larger ones.
INLINE_MAX_BYTES = 64 * 1024
#: How long one request may take, a long poll aside.
TIMEOUT_S = 30.0
#: How long a claim waits for work.
POLL_S = 20.0

Json = dict[str, Any]


class Refused(Exception):
    """The server understood the request and said no."""

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        super().__init__(f"{status}: {detail}")


class CommandOver(Exception):
    """Nothing more is to be done for this command, or nothing that this worker may do."""


class TaskFailed(Exception):
    """A task's own failure: it is reported with call.error, and the task's policy decides."""

    def __init__(self, kind: str, message: str, retryable: bool, **result: Any) -> None:
        self.error = {"kind": kind, "message": message, "retryable": retryable}
        self.result = result
        super().__init__(message)


# -- the server ---------------------------------------------------------------------------------------------------------


class Server:
    """Requests to one server, repeated until there is an answer."""

    def __init__(self, url: str, token: str, patience_s: float = 60.0) -> None:
        self.url = url.rstrip("/")
        self.token = token
        #: for how long an unreachable or busy server is asked again
        self.patience_s = patience_s

    def post(self, path: str, body: Json, timeout_s: float = TIMEOUT_S) -> Json:
        return self.send("POST", path, json.dumps(body).encode(), "application/json", timeout_s)

    def send(self, method: str, path: str, body: bytes, content_type: str, timeout_s: float = TIMEOUT_S) -> Json:
        """The answer as JSON. Raises Refused; OSError once patience is over. Every request here may be repeated: events
        have ids, content is named by its hash, and a command that is claimed twice is given back by its lease.
        """
        request = urllib.request.Request(self.url + path, body, method=method)
        request.add_header("Content-Type", content_type)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        deadline = time.monotonic() + self.patience_s
        pause_s = 0.1
        while True:
            try:
                with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                    found: Json = json.load(answer)
                    return found
            except urllib.error.HTTPError as problem:
                if problem.code not in (429, 503):
                    raise Refused(problem.code, _detail(problem)) from None
                pause_s = max(pause_s, float(problem.headers.get("Retry-After") or 0))
            except (OSError, json.JSONDecodeError):
                if time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:
                raise OSError(f"{self.url} does not answer")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 5.0)


def _detail(problem: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(problem).get("detail", problem.reason))
    except (ValueError, AttributeError):
        return str(problem.reason)


# -- reports ------------------------------------------------------------------------------------------------------------


class Command:
    """A claimed command, and the events that are reported for it."""

    def __init__(self, server: Server, worker_id: str, claimed: Json) -> None:
        self.server = server
        self.about = claimed
        #: what every event of the command says
        self.head: Json = {
            "execution_id": claimed["execution_id"],
            "command_id": claimed["command_id"],
            "fence": claimed["fence"],
            "worker_id": worker_id,
            "step": claimed["step"],
        }

    def report(self, event_type: str, **fields: Any) -> Json:
        """Report one event and return the answer. Raises CommandOver when the command is no longer this worker's."""
        given = {name: value for name, value in fields.items() if value is not None}
        event = {
            **self.head,
            "event_type": event_type,
            # Any positive 64-bit number that nobody else uses. It is minted once: however often the event is sent, it is
            # recorded once.
            "event_id": str(random.getrandbits(62) + 1),
            "created_at": datetime.now(UTC).isoformat(),
            **given,
        }
        try:
            answer = self.server.post("/api/events", event)
        except Refused as refusal:
            if refusal.status in (404, 409):
                raise CommandOver(str(refusal)) from None
            raise
        if answer.get("closed"):
            raise CommandOver(f"{event_type} was the last report")
        return answer


class Heartbeat:
    """Keeps a command's lease up while a task runs, and kills the task when the lease is lost."""

    def __init__(self, command: Command, lease_s: float) -> None:
        self._command = command
        self._interval_s = lease_s / 3
        self._stop = threading.Event()
        self.lost = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        head = self._command.head
        body = {"worker_id": head["worker_id"], "held": [[head["command_id"], head["fence"]]]}
        while not self._stop.wait(self._interval_s):
            try:
                if self._command.server.post("/api/worker/heartbeat", body, self._interval_s)["commands"]:
                    self.lost.set()
                    return
            except (OSError, Refused):
                continue  # the lease outlasts two missed heartbeats


# -- tools --------------------------------------------------------------------------------------------------------------

#: What a tool is given beside its config: the task's time limit, and whether the lease was lost meanwhile.
Tool = Callable[[Json, float, threading.Event], Any]


def noop(config: Json, timeout_s: float, lost: threading.Event) -> Any:
    return config.get("data")


def shell(config: Json, timeout_s: float, lost: threading.Event) -> Any:
    """Run a command; the result is its output, as text or (`parse: json`) as a value."""
    command = config["command"]
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **config.get("env", {})},
        start_new_session=True,
        text=True,
    )
    deadline = time.monotonic() + timeout_s
    given: str | None = config.get("input") or ""
    while True:
        try:
            output, errors = process.communicate(given, timeout=0.1)
            break
        except subprocess.TimeoutExpired:
            given = None  # what was not read yet is still being written
            if lost.is_set() or time.monotonic() > deadline:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                if lost.is_set():
                    raise CommandOver("the lease was lost") from None
                raise TaskFailed("timeout", f"the command took longer than {timeout_s:g} s", True) from None
    if process.returncode:
        last = (errors or output).strip().rpartition("\n")[2]
        raise TaskFailed("exception", f"exit code {process.returncode}: {last}", False, exit_code=process.returncode)
    return json.loads(output) if config.get("parse") == "json" else output.rstrip("\n")


def http(config: Json, timeout_s: float, lost: threading.Event) -> Any:
    """Make a request; the result is the answer's JSON, or its text."""
    url = config["url"]
    if config.get("params"):
        url += ("&" if "?" in url else "?") + urllib.parse.urlencode(config["params"], doseq=True)
    body = json.dumps(config["json"]).encode() if "json" in config else None
    request = urllib.request.Request(url, body, method=config.get("method", "GET"))
    for name, value in {**({"Content-Type": "application/json"} if body else {}), **config.get("headers", {})}.items():
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            text = answer.read().decode()
            return json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text
    except urllib.error.HTTPError as problem:
        kind = "server_error" if problem.code >= 500 else "client_error"
        raise TaskFailed(kind, f"{url} answers {problem.code}", problem.code >= 500, status=problem.code) from None
    except OSError as problem:
        raise TaskFailed("connection", f"{url}: {problem}", True) from None


TOOLS: dict[str, Tool] = {"noop": noop, "shell": shell, "http": http}


# -- the worker ---------------------------------------------------------------------------------------------------------


class Worker:
    """Claims commands one after the other and carries them out."""

    def __init__(self, server: Server, worker_id: str, pools: list[str]) -> None:
        self.server = server
        self.info: Json = {"worker_id": worker_id, "kinds": list(TOOLS), "pools": pools}
        self.stopping = False
        self.is_busy = False
        self.lease_s = 30.0
        self.store = ""

    def run(self) -> None:
        """Work until told to stop."""
        welcome = self.server.post("/api/worker/register", {"worker": self.info})
        self.lease_s, self.store = welcome["lease_s"], welcome["results"]
        claim = {"worker": self.info, "limit": 1, "wait_s": POLL_S, "form": "wire"}
        while not self.stopping:
            for claimed in self.server.post("/api/worker/claim", claim, POLL_S + TIMEOUT_S)["commands"]:
                self.is_busy = True
                self.carry_out(Command(self.server, self.info["worker_id"], claimed))
                self.is_busy = False

    def stop(self) -> None:
        """Finish the command at hand; without one, stop waiting for work. A command that was claimed at this very moment
        is offered again when its lease ends.
        """
        self.stopping = True
        if not self.is_busy:
            raise SystemExit

    def carry_out(self, command: Command) -> None:
        """Run one command to its end, to where the server takes over, or to where it is lost."""
        try:
            with Heartbeat(command, self.lease_s) as heartbeat:
                self._step(command, heartbeat.lost)
        except CommandOver as end:
            log(command, f"over: {end}")
        except Exception as problem:  # a bug here, or an event that does not fit: another worker may do better
            log(command, f"given up: {problem!r}")
            try:
                error = {"kind": "internal", "message": f"{type(problem).__name__}: {problem}"}
                command.report("command.failed", payload={"error": error})
            except (CommandOver, Refused, OSError) as end:
                log(command, f"over: {end}")

    def _step(self, command: Command, lost: threading.Event) -> None:
        about = command.about
        if about.get("expansion"):
            # Only a worker that evaluates templates can read the items of this loop.
            self.server.post("/api/worker/give-back", {name: command.head[name] for name in _GIVE_BACK})
            raise CommandOver("given back")
        if not about.get("started"):
            command.report("step.enter")
        if about.get("loop"):
            self._loop(command, about["loop"], lost)
        else:
            error = self._pipeline(command, about, None, lost)
            command.report("step.exit", status="FAILED" if error else "COMPLETED")

    def _loop(self, command: Command, loop: Json, lost: threading.Event) -> None:
        """Iterations that were under way, then those that were not started. The server ends the step."""
        for place in loop.get("under_way", []):
            self._iteration(command, place, place["iteration"], lost)
        for index in range(loop["first"], loop["last"]):
            iteration = f"{loop.get('outer', '')}{index}"
            place = command.report("loop.iteration.started", iteration=iteration)
            self._iteration(command, place, iteration, lost)

    def _iteration(self, command: Command, place: Json, iteration: str, lost: threading.Event) -> None:
        error = self._pipeline(command, place, iteration, lost)
        command.report("loop.iteration.failed" if error else "loop.iteration.done", iteration=iteration)

    def _pipeline(self, command: Command, place: Json, iteration: str | None, lost: threading.Event) -> Json | None:
        """Run the tasks of a step or an iteration; the error when its pipeline failed. `place` says what comes next."""
        while place.get("next"):
            task = place["next"]
            _wait_until(task.get("not_before"))
            if not task.get("in_flight"):
                command.report("task.started", task=task["task"], iteration=iteration)
            log(command, f"task {task['task']} ({task['kind']}), attempt {task.get('attempt', 1)}")
            where = {"task": task["task"], "iteration": iteration}
            try:
                result = self._attempt(task, lost)
                place = command.report("call.done", **where, **self._result(command, where, result))
            except TaskFailed as failure:
                place = command.report("call.error", **where, payload={"error": failure.error, **failure.result})
        error: Json | None = place.get("error")
        return error

    def _attempt(self, task: Json, lost: threading.Event) -> Any:
        if task.get("config") is None:
            raise TaskFailed("config", f"the server cannot render the config: {task.get('problem')}", False)
        result = TOOLS[task["kind"]](task["config"], task.get("timeout_s") or 3600.0, lost)
        if lost.is_set():
            raise CommandOver("the lease was lost")
        return result

    def _result(self, command: Command, where: Json, result: Any) -> Json:
        """The fields that report a result: the value itself, or the reference of what was stored."""
        body = json.dumps(result).encode()
        if len(body) <= INLINE_MAX_BYTES:
            return {"payload": result}
        sha256 = hashlib.sha256(body).hexdigest()
        tenant = command.about["scope"].partition("/")[0]
        query = urllib.parse.urlencode({"tenant": tenant, "sha256": sha256, "content_type": "application/json"})
        self.server.send("POST", f"/api/worker/results?{query}", body, "application/octet-stream")
        name = f"{command.about['step']}.{where['task']}"
        ref = f"noetl://execution/{command.about['execution_id']}/result/{name}/{sha256}"
        meta = {"bytes": len(body), "sha256": sha256, "content_type": "application/json", "shape": "data"}
        # What arcs and later templates on the server read of a stored result must be extracted; small keys are.
        parts = result.items() if isinstance(result, dict) else ()
        payload = {
            "result_ref": {"kind": "result_ref", "store": self.store, "ref": ref, "meta": meta},
            "extracted": {key: value for key, value in parts if len(json.dumps(value)) <= 1024},
        }
        command.report("result.stored", **where, payload=payload)
        return {"result_kind": "ref", "result_uri": ref}


_GIVE_BACK = ("worker_id", "execution_id", "command_id", "fence")


def _wait_until(moment: str | None) -> None:
    if moment:
        due = datetime.fromisoformat(moment)
        time.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()))


def log(command: Command, text: str) -> None:
    print(f"{command.about['execution_id']} {command.about['step']}: {text}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description="A worker for arclog in plain Python.")
    options.add_argument("--server", default="http://127.0.0.1:8420", help="address of an arclog server")
    options.add_argument("--worker-id", default=f"foreign-{os.getpid()}", help="tells the workers of one key apart")
    options.add_argument("--pool", action="append", help="pools to serve (default: default)")
    given = options.parse_args()
    server = Server(given.server, os.environ.get("ARCLOG_TOKEN", ""))
    worker = Worker(server, given.worker_id, given.pool or ["default"])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    try:
        worker.run()
    except Refused as refusal:
        sys.exit(f"the server does not let this worker in: {refusal}")


if __name__ == "__main__":
    main()
