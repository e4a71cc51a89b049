"""Large inputs, made when they are needed."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any


def gathered(value: str, count: int = 900, where: str = "arc") -> str:
    """A playbook whose template gathers many values, each of them small enough."""
    template = (
        "{% set ns = namespace(l=[]) %}{% for i in range(" + str(count) + ") %}{% set ns.l = ns.l + [" + value + "] %}"
        "{% endfor %}{{ ns.l | length }}"
    )
    return templated(template, where)


def templated(template: str, where: str = "arc") -> str:
    """A playbook with a template in the arguments of an arc, behind a timer, or in a task."""
    noop: dict[str, Any] = {"kind": "noop"}
    first: dict[str, Any] = {
        "step": "start",
        "tool": noop,
        "next": {"arcs": [{"step": "last", "args": {"a": template}}]},
    }
    if where == "timer":
        first["tool"] = {"kind": "wait", "for_s": 0.2}
    elif where == "task":
        first = {"step": "start", "tool": {"kind": "noop", "data": template}, "next": {"arcs": [{"step": "last"}]}}
    elif where == "when":
        first["next"] = {"arcs": [{"step": "last", "when": template}]}
    return json.dumps(
        {"metadata": {"name": "bomb"}, "workflow": [first, {"step": "last", "tool": noop}]}, ensure_ascii=False
    )


def self_looping(runs_work: int = 20000) -> str:
    """A run that does heavy work for each step, again and again."""
    template = (
        "{% set ns = namespace(n=0) %}{% for i in range("
        + str(runs_work)
        + ") %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}"
    )
    step = {"step": "start", "tool": {"kind": "noop"}, "next": {"arcs": [{"step": "start", "args": {"a": template}}]}}
    return json.dumps({"metadata": {"name": "busy"}, "workflow": [step]})


def joins(steps: int = 2000, arcs: int = 20) -> str:
    """Steps that each join, in one cycle."""
    workflow = [
        {
            "step": f"s{at}",
            "spec": {"join": "all"},
            "tool": {"kind": "noop"},
            "next": {"arcs": [{"step": f"s{(at + ahead) % steps}"} for ahead in range(1, arcs + 1)]},
        }
        for at in range(steps)
    ]
    return json.dumps({"metadata": {"name": "joins"}, "workflow": workflow})


def aliases(depth: int = 12, width: int = 10) -> str:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * width)}]" for at in range(1, depth)]
    return "\n".join(
        [
            *lines,
            "metadata: {name: a}",
            f"workload: {{all: *a{depth - 1}}}",
            "workflow: [{step: start, tool: {kind: noop}}]",
        ]
    )


def nested(depth: int = 20000) -> str:
    return (
        "metadata: {name: a}\nworkload: {deep: "
        + "[" * depth
        + "]" * depth
        + "}\nworkflow: [{step: start, tool: {kind: noop}}]\n"
    )


def many_steps(count: int = 20000) -> str:
    return "metadata: {name: a}\nworkflow:\n" + "".join(
        f"- {{step: s{at}, tool: {{kind: noop}}}}\n" for at in range(count)
    )


def execute(of: str, **more: Any) -> str:
    """The body of a request that starts a playbook made here."""
    return json.dumps({"playbook": MADE[of](**more)})


def report(items: int = 3_000_000) -> str:
    """A worker's report of a run that does not exist."""
    head = {"worker_id": "w", "execution_id": 12345, "command_id": 6789, "fence": 1, "n": 1, "events": [[]]}
    return json.dumps(head).replace("[[]]", "[[" + "[]," * items + "[]]]")


def lists(items: int = 2_600_000) -> str:
    """A body that is small as text and large once decoded."""
    return '{"playbook": [' + "[]," * items + "[]]}"


def workload(items: int = 2_000_000) -> str:
    """A request whose data is small as text; to decode it takes long."""
    data = "[" + "[]," * items + "1]"
    return f'{{"playbook": "a", "signal": "a", "data": {data}, "workload": {{"a": 1}}}}'


def zeros(size: int = 1 << 30) -> bytes:
    """As many zeros, packed."""
    return gzip.compress(bytes(size // 64), 9) * 64


def directory(entries: int = 150_000) -> bytes:
    """An archive that has nothing but names."""
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, entries % 65536, entries % 65536, len(entry) * entries, 0, 0)
    return entry * entries + end


def exported(items: int = 60_000_000) -> bytes:
    """An exported run whose log is small as a file and large in memory. Its checksums are right."""
    return _archive(b'[1,{"t":"playbook.execution.requested","@":1,"p":{"a":[' + b"[]," * items + b"1]}}]\n")


def imported(part: str = "", compression: int = zipfile.ZIP_DEFLATED, **named: str) -> bytes:
    """A small exported run with right checksums. `named`: what its manifest says; `part`: the name of one more part."""
    request = b'[1,{"t":"playbook.execution.requested","@":1,"p":{}}]\n'
    return _archive(request, compression, {part: b"planted"} if part else {}, **named)


def _archive(
    log: bytes, compression: int = zipfile.ZIP_DEFLATED, more: dict[str, bytes] | None = None, **named: str
) -> bytes:
    parts = {"log.jsonl": log, "plan.json": b"{}", **(more or {})}
    listed = [
        {"name": name, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()} for name, body in parts.items()
    ]
    text = dict.fromkeys(("arclog", "exported_at", "run_id", "name", "path", "plan", "scope", "state"), "a")
    numbers = dict.fromkeys(("format", "version", "created_at", "events"), 1)
    manifest = json.dumps({**text, **numbers, "execution_id": "77", **named, "parts": listed}).encode()
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression, compresslevel=1) as archive:
        for name, body in parts.items():
            archive.writestr(name, body)
        archive.writestr("manifest.json", manifest)
        archive.writestr("manifest.sha256", hashlib.sha256(manifest).hexdigest())
    return target.getvalue()


MADE: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        gathered,
        templated,
        self_looping,
        joins,
        aliases,
        nested,
        many_steps,
        report,
        lists,
        workload,
        zeros,
        directory,
        exported,
        imported,
    )
}
MADE["execute"] = execute
