"""Declarations of typed inputs: `executor.spec.inputs`, checked against themselves and against the workload."""

from __future__ import annotations

from typing import Any

from arclog.model.inputs import LONGEST_SECRET, misfit_of, pattern_fault
from arclog.playbook.schema import INPUT, NAME
from arclog.playbook.walk import Walker, suggested_name
from arclog.playbook.yaml.document import Path
from arclog.playbook.yaml.lenient import as_map

_MAX_DEPTH = 20
#: Which keys of a declaration have a meaning for which types.
KEYS = {
    "pattern": ("string", "secret", "any"),
    "default": ("string", "integer", "number", "boolean", "date", "datetime", "list", "object", "any"),
    "enum": ("string", "integer", "number", "boolean", "date", "datetime", "list", "object", "any"),
    "items": ("list", "any"),
    "properties": ("object", "any"),
    "min": ("string", "secret", "integer", "number", "list", "object", "any"),
    "max": ("string", "secret", "integer", "number", "list", "object", "any"),
}


def read_inputs(walker: Walker, inputs: dict[str, Any], workload: dict[str, Any]) -> dict[str, Any]:
    """The declarations by name, without `x-` keys. What does not fit is a finding."""
    path: Path = ("executor", "spec", "inputs")
    made: dict[str, Any] = {}
    for name, raw in inputs.items():
        here = (*path, name)
        if not NAME.match(name):
            message = f"inputs: {name[:60]!r} is not a name (letters, digits and _, not first a digit)"
            walker.findings.key("bad-name", message, here, f"for example {suggested_name(name)}")
            continue
        if as_map(raw).get("type") == "secret" and len(name) > LONGEST_SECRET:
            message = f"inputs: the name of a secret has at most {LONGEST_SECRET} characters, not {len(name)}"
            walker.findings.key("bad-name", message, here)
        made[name] = _declaration(walker, as_map(raw), here, f"inputs.{name}", 0)
        if name not in workload:
            continue
        if made[name].get("type") == "secret":
            hint = "remove it: it is provided when a run is started"
            message = f"inputs.{name} is a secret, and workload.{name} has a value"
            walker.findings.key("literal-secret", message, ("workload", name), hint)
            continue
        if "default" in made[name]:
            hint = "keep the default of the input"
            message = f"inputs.{name} has a default, and workload.{name} is another"
            walker.findings.key("conflict", message, ("workload", name), hint)
        elif wrong := misfit_of(workload[name], made[name]):
            walker.findings.value("bad-value", f"workload.{name}: {wrong}", ("workload", name))
    return made


def _declaration(walker: Walker, raw: dict[str, Any], path: Path, label: str, depth: int) -> dict[str, Any]:
    made = {key: value for key, value in raw.items() if not key.startswith("x-")}
    kind = made.get("type", "any")
    if kind == "secret" and depth:
        hint = "declare it as an input of its own"
        walker.findings.key("bad-value", f"{label}: a secret cannot be a part of another input", (*path, "type"), hint)
    for key, kinds in KEYS.items():
        if key in made and kind not in kinds:
            message = f"{label}: {key} has no meaning for type {kind}"
            hint = f"it belongs to type {', '.join(kinds[:-1])}"
            if kind == "secret" and key == "default":
                hint = "remove it: whoever starts a run gives the secret"
            walker.findings.key("bad-value", message, (*path, key), hint)
    if made.get("required") is True and "default" in made:
        hint = "remove one: an input with a default is never missing"
        walker.findings.key("conflict", f"{label} is required and has a default", (*path, "default"), hint)
    if isinstance(made.get("pattern"), str) and (wrong := pattern_fault(made["pattern"])):
        hint = r"a backslash makes a sign plain: \[ \( \."
        walker.findings.value("bad-value", f"{label}.pattern: {wrong}", (*path, "pattern"), hint)
        del made["pattern"]
    least, most = made.get("min"), made.get("max")
    if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
        message = f"{label}: min {least} is above max {most}: nothing fits"
        walker.findings.key("conflict", message, (*path, "min"), "exchange them, or remove one")
    if made.get("enum") == []:
        message = f"{label}.enum is empty: nothing fits"
        walker.findings.value("bad-value", message, (*path, "enum"), "list the values, or remove it")
    if depth >= _MAX_DEPTH:
        walker.findings.value("limit-exceeded", f"{label}: declarations nest deeper than {_MAX_DEPTH} levels", path)
        return made
    if isinstance(made.get("items"), dict):
        here = (*path, "items")
        walker.walk(made["items"], INPUT, here, "input")
        made["items"] = _declaration(walker, made["items"], here, f"{label}.items", depth + 1)
    for key, part in as_map(made.get("properties")).items():
        here = (*path, "properties", key)
        walker.walk(part, INPUT, here, "input")
        made["properties"] = {
            **made["properties"],
            key: _declaration(walker, as_map(part), here, f"{label}.{key}", depth + 1),
        }
    if made.get("default") is not None and (wrong := misfit_of(made["default"], made)):
        hint = "give it a default that it allows, or none"
        walker.findings.value("bad-value", f"{label}.default: {wrong}", (*path, "default"), hint)
    return made
