"""Makes a test from a run: its workload, a mock for each outcome, and its result."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import yaml
from msgspec import DecodeError
from msgspec.json import decode

from arclog.model.outcome import data_of
from arclog.testing.playbook_tests.mocks import PURE

#: Tasks that end at a virtual time, or by a signal.
_WAITING = frozenset({"wait", "approval"})


@dataclass(slots=True)
class Recorded:
    """The data of a run besides its events."""

    #: the playbook's text: fields that it never names are not recorded
    source: str
    #: kinds of tasks by (step, task), and the names of their helpers by kind
    kinds: Mapping[tuple[str, str], str]
    helpers: Mapping[str, str] = field(default_factory=dict)
    #: contents of stored results and files by reference; those that are missing are left out
    contents: Mapping[str, bytes] = field(default_factory=dict)


def stored_refs(events: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the stored results and files that a test made from these events would contain: references, with their
    sizes.
    """
    refs: dict[str, int] = {}
    for event in events:
        payload = event.get("payload") or {}
        outcome = payload.get("outcome") or {}
        outcome_refs = [outcome.get("result_ref"), *(outcome.get("files") or {}).values()]
        outcome_refs += [payload.get("result_ref")] if event["event_type"] == "playbook.finished" else []
        refs.update({ref["ref"]: int((ref.get("meta") or {}).get("bytes") or 0) for ref in outcome_refs if ref})
    return refs


def recorded(events: Sequence[Mapping[str, Any]], name: str, run: Recorded) -> str:
    """The text of a test file. `events` are envelopes."""
    recording = _Recording(run)
    for event in events:
        recording.add(event)
    case = {"name": name, **recording.case()}
    head = "# Recorded by `arclog test record`. Review the values: they come from the run.\n"
    if recording.left_out:
        omitted = "\n".join(f"#   {line}" for line in recording.left_out)
        head += f"# Not recorded (stored outside the log, or redacted); fill in by hand:\n{omitted}\n"
    body = yaml.dump(
        {"playbook": recording.playbook, "tests": [case]},
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=120,
    )
    return head + body


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text.rstrip("\n") else None)


_Dumper.add_representer(str, _text)


class _Recording:
    def __init__(self, run: Recorded) -> None:
        self.run = run
        self.kinds = run.kinds
        self.playbook = "playbook.yaml"
        self.workload: dict[str, Any] = {}
        self.mocks: list[dict[str, Any]] = []
        self.signals: list[dict[str, Any]] = []
        self.path: list[str] = []
        self.expect: dict[str, Any] = {}
        self.left_out: list[str] = []
        self.started_at = ""

    def case(self) -> dict[str, Any]:
        case: dict[str, Any] = {}
        if self.workload:
            case["workload"] = self.workload
        if self.mocks:
            case["mocks"] = self.mocks
        if self.signals:
            case["signals"] = self.signals
        case["expect"] = {"path": self.path, **self.expect}
        return case

    def add(self, event: Mapping[str, Any]) -> None:
        payload = event.get("payload") or {}
        match event["event_type"]:
            case "playbook.execution.requested":
                self.started_at = event["timestamp"]
                self.workload = payload.get("workload") or {}
                self.playbook = PurePath(payload.get("file") or f"{payload.get('path') or 'playbook'}.yaml").name
            case "step.scheduled":
                self.path.append(event["step"])
            case "task.done" | "task.failed" | "task.attempt.failed":
                self.outcome(event, payload.get("outcome") or {})
            case "signal.received":
                self.signal(event, payload)
            case "playbook.finished" | "execution.cancelled":
                self.end(event, payload)
            case _:
                pass

    def outcome(self, event: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        kind = self.kinds.get((event["step"], event["task"]), "")
        if kind in PURE or kind in _WAITING or not outcome or not kind:
            return
        mock: dict[str, Any] = {"step": event["step"], "task": event["task"]}
        item = _item(event)
        if item is not None:
            mock["item"] = item
        attempt = (outcome.get("meta") or {}).get("attempt") or event.get("attempt") or 1
        failed_attempt = event["event_type"] == "task.attempt.failed"
        if failed_attempt or attempt > 1:
            mock["attempt"] = attempt
        if outcome.get("status") == "error":
            error = outcome.get("error") or {}
            mock["error"] = {
                key: error[key] for key in ("kind", "message", "code", "retryable") if error.get(key) is not None
            }
            if outcome.get("result") is not None:
                mock["result"] = outcome["result"]
        elif outcome.get("result_ref"):
            mock["ok"] = self.stored(outcome["result_ref"], f"{event['step']}.{event['task']}")
        elif ".result" in self.run.source and outcome.get("result") != outcome.get("data"):
            mock["result"] = outcome.get("result")
        else:
            mock["ok"] = outcome.get("data", data_of(outcome))
        helper = {
            key: value
            for key, value in (outcome.get(self.run.helpers.get(kind, "")) or {}).items()
            if value is not None and f".{key}" in self.run.source and key != "traceback"
        }
        if helper and helper != {"status": 200}:
            mock["helper"] = helper
        if outcome.get("files"):
            mock["files"] = self.files(event, outcome["files"])
        if not any(_same_call(mock, recorded) for recorded in self.mocks):
            self.mocks.append(mock)
        else:
            # A task that runs again (a jump, a second run of its step): its answers come in order.
            for recorded in self.mocks:
                if _same_call(mock, recorded):
                    recorded.setdefault("times", 1)
            self.mocks.append({**mock, "times": 1})

    def stored(self, ref: Mapping[str, Any], where: str) -> Any:
        """Return a stored result; None if it is too large or missing, and then it is listed."""
        body = self.run.contents.get(ref.get("ref", ""))
        if body is not None:
            try:
                return decode(body)
            except DecodeError:
                pass
        self.left_out.append(f"{where}: {ref.get('ref', 'a stored result')}")
        return None

    def files(self, event: Mapping[str, Any], refs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the files of a task. One that is too large or missing is empty in the test, and listed."""
        files: dict[str, Any] = {}
        for name, ref in refs.items():
            body = self.run.contents.get(ref.get("ref", ""))
            if body is None:
                self.left_out.append(f"{event['step']}.{event['task']}, file {name}: {ref.get('ref', '')}")
                continue
            try:
                text = body.decode()
                files[name] = text if text.isprintable() or not set(text) & _CONTROL else {"base64": _base64(body)}
            except UnicodeDecodeError:
                files[name] = {"base64": _base64(body)}
            if isinstance(files[name], str) and ("{{" in text or "{%" in text):
                files[name] = {"base64": _base64(body)}  # a text would be a template
        return files

    def signal(self, event: Mapping[str, Any], payload: Mapping[str, Any]) -> None:
        name = payload.get("signal")
        if not name or name in ("CANCEL", "PAUSE", "RESUME"):
            return
        from arclog.model.ids import micros

        after = (micros(event["timestamp"]) - micros(self.started_at)) / 1_000_000 if self.started_at else 1.0
        signal = {"signal": name, "at": round(after, 3)}
        for key in ("step", "data", "reason"):
            if payload.get(key):
                signal[key] = payload[key]
        self.signals.append(signal)

    def end(self, event: Mapping[str, Any], payload: Mapping[str, Any]) -> None:
        if event["event_type"] == "execution.cancelled":
            self.expect["state"] = "cancelled"
        elif event.get("status") == "error":
            self.expect["state"] = "failed"
            error = payload.get("error") or {}
            self.expect["error"] = {key: error[key] for key in ("kind", "message") if error.get(key)}
        else:
            self.expect["state"] = "completed"
            if payload.get("result_ref"):
                value = self.stored(payload["result_ref"], "the result of the run")
                self.expect |= {} if value is None else {"result": value}
            elif "result" in payload:
                self.expect["result"] = payload["result"]


#: Characters that YAML cannot write as they are.
_CONTROL = frozenset(chr(number) for number in range(32)) - {"\n", "\t"}


def _base64(body: bytes) -> str:
    return b64encode(body).decode()


def _same_call(mock: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(mock.get(key) == other.get(key) for key in ("step", "task", "item", "attempt"))


def _item(event: Mapping[str, Any]) -> int | str | None:
    iteration = str(event.get("iteration_id") or "")
    if not iteration:
        return None
    path = iteration.rpartition(":")[2]
    return int(path) if path.isdigit() else path
