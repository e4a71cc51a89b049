"""Validates a document against the tables, and collects findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from arclog.model.data.shapes import Field
from arclog.model.errors import Finding, Position, shortened
from arclog.playbook.document import Document, Path
from arclog.playbook.legacy_forms import CONTROL, CONTROL_LABELS, FOREIGN, LEGACY, PLACEHOLDERS
from arclog.playbook.schema import ACTIONS, NAME, NAME_LENGTH, RESERVED, has_template

#: Maximum number of errors, and of other findings, of one playbook; further ones are only counted.
MOST_FINDINGS = 500


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the most similar known word, or ''."""
    if len(word) > NAME_LENGTH:
        return ""
    from difflib import get_close_matches  # only an error message needs it

    close = [candidate for candidate in words if abs(len(candidate) - len(word)) <= 3]
    matches = get_close_matches(word, close[:2000], n=1, cutoff=0.6)
    return matches[0] if matches else ""


def suggested_name(text: str) -> str:
    """Return a valid name that is similar to an invalid one."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)[:NAME_LENGTH]
    return name if NAME.match(name) else f"s{name}"


class Findings:
    """The findings in one document so far."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.errors: list[Finding] = []
        self.others: list[Finding] = []
        self.left_out = 0
        #: number of words that may still be compared for hints, so that they do not dominate the cost of a hostile file
        self.patience = 50_000

    @property
    def items(self) -> list[Finding]:
        return [*self.errors, *self.others]

    @property
    def full(self) -> bool:
        """Return whether further warnings would only be counted."""
        return len(self.others) >= MOST_FINDINGS

    def nearest(self, word: str, words: Iterable[str]) -> str:
        """Return the most similar known word, or ''."""
        if self.patience <= 0:
            return ""
        words = list(words)
        self.patience -= len(words)
        return nearest(word, words)

    def did_you_mean(self, word: str, words: Iterable[str]) -> str:
        """Return a hint with the most similar known word, or with a list of a few."""
        if self.patience <= 0:
            return ""
        words = list(words)
        near = self.nearest(word, words)
        if near:
            return f"did you mean {near}?"
        return f"known: {', '.join(sorted(words))}" if 0 < len(words) <= 24 else ""

    def add(self, code: str, message: str, at: Position, hint: str = "", severity: str = "error") -> None:
        kept = self.errors if severity == "error" else self.others
        if len(kept) >= MOST_FINDINGS:
            self.left_out += 1
        else:
            kept.append(Finding(code, message, at, severity, hint))

    def value(self, code: str, message: str, path: Path, hint: str = "", severity: str = "error") -> None:
        """Add a finding at a value."""
        self.add(code, message, self.document.at(path), hint, severity)

    def key(self, code: str, message: str, path: Path, hint: str = "", severity: str = "error") -> None:
        """Add a finding at the key of a value."""
        self.add(code, message, self.document.key_at(path), hint, severity)

    def unique(self, name: str, path: Path, seen: dict[str, Path], noun: str) -> None:
        """Record a name that must be unique, or report where it was used first."""
        if name in seen:
            first = self.document.at(seen[name])
            self.value(
                "duplicate-name",
                f"the {noun} {name!r} is defined twice, first at {first}",
                path,
                "give one of them another name",
            )
        else:
            seen[name] = path


def noun(value: Any) -> str:
    """Describe a value in a message, with its text if that helps."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        text = shortened(value, 40, "...")
        return f"the text {text!r}"
    return "a map" if isinstance(value, dict) else "a list"


_WANTED = {
    "any": "anything",
    "string": "a text",
    "name": "a name",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "object": "a map",
    "list": "a list",
    "null": "null",
    "condition": "a condition (text or boolean)",
}


def wanted(field: Field) -> str:
    return " or ".join(_WANTED[word] for word in field.types)


def fits(value: Any, word: str) -> bool:
    """Return whether a value has the type of a type word."""
    if word == "any":
        return True
    if word in ("string", "name"):
        return isinstance(value, str)
    if word == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if word == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if word == "boolean":
        return isinstance(value, bool)
    if word == "object":
        return isinstance(value, dict)
    if word == "list":
        return isinstance(value, list)
    if word == "condition":
        return isinstance(value, (str, bool))
    return value is None


class Walker:
    """Validates values against fields and collects all errors."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        #: fields by the identity of their table, which is kept so that the identity stays unique
        self._tables: dict[int, tuple[tuple[Field, ...], dict[str, Field], list[Field]]] = {}
        self._types: dict[str, tuple[str, ...]] = {}

    def walk(self, value: Any, field: Field, path: Path, label: str) -> bool:
        """Return whether the value is valid. Every error below it becomes a finding."""
        if (field.template or field.plain) and has_template(value):
            if field.plain:
                self.findings.value("bad-value", f"{label}: a template is not allowed here", path, field.doc)
            return not field.plain
        types = self._types.get(field.type)
        if types is None:
            types = self._types[field.type] = field.types
        if not fits(value, types[0]) and not any(fits(value, word) for word in types[1:]):
            hint = _misfit_hint(label, value, types)
            code = "legacy-form" if label == "step.next" and isinstance(value, (str, list)) else "wrong-type"
            self.findings.value(code, f"{label}: expected {wanted(field)}, found {noun(value)}", path, hint)
            return False
        if isinstance(value, dict):
            if field.fields is not None:
                return self.keys(value, field.fields, path, label)
            if field.items is not None:
                shape = field.items
                fitting = [self.walk(item, shape, (*path, key), f"{label}.{key}") for key, item in value.items()]
                return all(fitting)
            return True
        if isinstance(value, list):
            if field.items is None:
                return True
            shape = field.items
            fitting = [self.walk(item, shape, (*path, index), shape.name) for index, item in enumerate(value)]
            return all(fitting)
        if "name" in types and isinstance(value, str):
            return self.name(value, path, label)
        return self.bounds(value, field, path, label)

    def keys(self, value: dict[str, Any], fields: tuple[Field, ...], path: Path, label: str) -> bool:
        """Return whether the keys of a closed map are known, complete and valid."""
        table = self._tables.get(id(fields))
        if table is None:
            table = fields, {field.name: field for field in fields}, [field for field in fields if field.required]
            self._tables[id(fields)] = table
        _, by_name, required = table
        placeholders = PLACEHOLDERS.get(label, ())
        good = True
        for key, item in value.items():
            field = by_name.get(key)
            if field is None:
                if not key.startswith("x-"):
                    self.unknown(key, by_name, (*path, key), label)
                    good = False
                continue
            if key in placeholders:
                self.findings.key(
                    "placeholder", f"{label}.{key} has no effect in this version", (*path, key), severity="info"
                )
            good = self.walk(item, field, (*path, key), _label(label, key)) and good
        for field in required:
            if field.name not in value and value.keys().isdisjoint(field.also):
                self.findings.value("missing-key", f"{label} needs the key '{field.name}'", path, field.doc)
                good = False
        return good

    def unknown(self, key: str, allowed: Mapping[str, Field], path: Path, label: str) -> None:
        shown = shortened(key, 60, "...")
        if label in CONTROL_LABELS and key in CONTROL:
            hint = "control actions belong to a task: spec: {policy: {rules: [{when: …, then: {do: …}}]}}"
            if label == "step.spec.policy" and key == "rules":
                hint = "admission: policy: {admit: {rules: […]}}; " + hint
            self.findings.key("control-key", f"'{key}' is not allowed in {label}", path, hint)
            return
        legacy = LEGACY.get((label, key)) or LEGACY.get(("*", key))
        if legacy:
            self.findings.key(
                "legacy-form", f"'{shown}' in {label} is an older form that is no longer supported", path, legacy
            )
            return
        foreign = FOREIGN.get((label, key))
        if foreign and not any(key in field.also for field in allowed.values()):
            self.findings.key("unknown-key", f"{label} has no key '{shown}'", path, f"in arclog: {foreign}")
            return
        meant = next((field.name for field in allowed.values() if key in field.also), "")
        if not meant and label.endswith(".retry"):
            meant = _RETRY_WORDS.get(key, "")
        hint = f"did you mean {meant}?" if meant else self.findings.did_you_mean(key, allowed)
        self.findings.key("unknown-key", f"{label} has no key '{shown}'", path, hint)

    def name(self, value: str, path: Path, label: str) -> bool:
        """Return whether a text is a name that an author may use."""
        if not NAME.match(value) or len(value) > NAME_LENGTH:
            suggestion = suggested_name(value)
            shown = shortened(value, 60, "...")
            message = f"{label}: {shown!r} is not a name (letters, digits and _, not starting with a digit, at most {NAME_LENGTH})"
            self.findings.value("bad-name", message, path, f"for example {suggestion[:60]}" if value else "")
            return False
        if value in RESERVED or value.startswith("_"):
            why = (
                "names that start with _ are reserved for arclog"
                if value.startswith("_")
                else "templates already use it"
            )
            hint = f"for example my_{value.strip('_')[:60] or 'name'}"
            self.findings.value("reserved-name", f"{label}: {value!r} is reserved: {why}", path, hint)
            return False
        return True

    def bounds(self, value: Any, field: Field, path: Path, label: str) -> bool:
        if field.choices and isinstance(value, str) and value not in field.choices:
            words = (value.lower(), *_SYNONYMS.get(value.lower(), ()))
            same = next((word for word in words if word in field.choices), "")
            near = same or self.findings.nearest(value, field.choices)
            hint = f"did you mean {near}?" if near else ""
            self.findings.value(
                "bad-value", f"{label}: {noun(value)} is none of {', '.join(field.choices)}", path, hint
            )
            return False
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            problem = _outside(value, field)
            if problem:
                self.findings.value("out-of-range", f"{label}: {value} {problem}", path)
                return False
        return True


#: Names of `retry` keys in other tools.
_RETRY_WORDS = {
    **dict.fromkeys(
        ("maxAttempt", "maxAttempts", "maximum_attempts", "maximumAttempts", "retries", "limit"), "attempts"
    ),
    **dict.fromkeys(("retry_delay", "initial_interval", "initialInterval", "interval", "interval_s", "wait"), "delay"),
    **dict.fromkeys(("maximum_interval", "maximumInterval", "max_retry_delay", "maxInterval", "maxDelay"), "max_delay"),
    **dict.fromkeys(
        ("backoff_coefficient", "backoffCoefficient", "backoff_rate", "retry_exponential_backoff"), "backoff"
    ),
    **dict.fromkeys(("retry_delays", "retry_delay_seconds", "intervals"), "delays"),
    **dict.fromkeys(("retry_on", "errors", "error_types", "retryable_errors"), "on"),
}

#: Names in other tools for a value of a closed list.
_SYNONYMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("int", "long"), ("integer",)),
    **dict.fromkeys(("float", "double", "decimal"), ("number",)),
    "bool": ("boolean",),
    **dict.fromkeys(("str", "text", "varchar"), ("string",)),
    **dict.fromkeys(("array", "set"), ("list",)),
    **dict.fromkeys(("map", "dict", "json"), ("object",)),
    **dict.fromkeys(("timestamp", "time"), ("datetime",)),
    **dict.fromkeys(("async", "concurrent"), ("parallel",)),
    **dict.fromkeys(("sync", "serial"), ("sequential",)),
    **dict.fromkeys(("success", "succeeded", "ok", "done"), ("completed",)),
    **dict.fromkeys(("failure", "error"), ("failed", "fail")),
    **dict.fromkeys(("ignore", "continue"), ("best_effort",)),
    **dict.fromkeys(("wait", "enqueue"), ("queue",)),
    **dict.fromkeys(("again", "repeat"), ("retry",)),
    **dict.fromkeys(("fixed", "constant"), ("none",)),
    **dict.fromkeys(("add", "total"), ("sum",)),
    **dict.fromkeys(("always", "yes", "true"), ("required",)),
    **dict.fromkeys(("password", "token", "credential"), ("secret",)),
    **dict.fromkeys(("all_success", "none_failed"), ("all_ok",)),
    **dict.fromkeys(("all_done", "and"), ("all",)),
    **dict.fromkeys(("one_success", "one_done", "or"), ("any",)),
    "vault": ("secret_manager",),
}


def _outside(value: float, field: Field) -> str:
    if field.exclusive_min is not None and value <= field.exclusive_min:
        return f"must be more than {field.exclusive_min:g}"
    if field.minimum is not None and value < field.minimum:
        return f"is below the lowest value allowed, {field.minimum:g}"
    if field.maximum is not None and value > field.maximum:
        return f"is above the highest value allowed, {field.maximum:g}"
    return ""


def _label(parent: str, key: str) -> str:
    """Return the label of the map under a key in messages: a loop is a loop at any level."""
    if key == "loop":
        return "loop"
    return key if parent == "playbook" else f"{parent}.{key}"


def _misfit_hint(label: str, value: Any, types: tuple[str, ...]) -> str:
    if label == "step.next":
        if isinstance(value, str):
            return f"next: {{arcs: [{{step: {value}}}]}}"
        if isinstance(value, list):
            names = [
                item if isinstance(item, str) else item.get("step", "NAME") if isinstance(item, dict) else "NAME"
                for item in value
            ]
            return f"next: {{arcs: [{', '.join(f'{{step: {name}}}' for name in names[:5])}]}}"
    if label.endswith(".then") and isinstance(value, str):
        return f"then: {{do: {value}}}" if value in ACTIONS else "then: {do: …}"
    if label == "step.next":
        return "next: {arcs: [{step: NAME}]}"
    if label == "step.tool" and isinstance(value, str):
        return f"tool: {{kind: {value}, …}}" if NAME.match(value) else "tool: {kind: …}"
    if label == "workflow" and isinstance(value, dict):
        return "a list of steps, each with its name under `step`: workflow: [{step: NAME, tool: {kind: …}}]"
    if label.endswith(".retry") and isinstance(value, int) and not isinstance(value, bool):
        return f"retry: {{attempts: {value}}}"
    if label in ("executor.spec.on_failure", "executor.spec.on_success") and isinstance(value, str) and value:
        where = "email" if "@" in value else "webhook"
        return f"{label.rpartition('.')[2]}: [{{{where}: {value}}}]"
    if label == "executor.spec.inputs" and isinstance(value, list):
        names = [
            str(item.get("id") or item.get("name") or "NAME") if isinstance(item, dict) else "NAME" for item in value
        ]
        return f"inputs: {{{', '.join(f'{name}: {{type: string}}' for name in names[:3])}}}"
    if value is None:
        return "remove the key, or give it a value"
    if "string" in types and isinstance(value, (bool, int, float)):
        return f'quote it: "{str(value).lower() if isinstance(value, bool) else value}"'
    if isinstance(value, str) and has_template(value):
        return "this key does not accept a template"
    if isinstance(value, str) and ("number" in types or "integer" in types):
        return f"without quotes: {value}" if value.replace(".", "", 1).isdigit() else "a number; times are seconds"
    if isinstance(value, str) and "boolean" in types:
        return "true or false, without quotes"
    if "object" in types:
        return "keys with values: {KEY: VALUE}"
    if "list" in types:
        return "a list: [ITEM, …]"
    return ""
