"""Renders the section "Every key" of docs/playbook.md from the tables of the playbook language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from arclog.model.config.kinds import COMMON_SPEC_FIELDS, RETRY
from arclog.model.data.shapes import LONGEST_S, Field
from arclog.playbook.declarations import KINDS, SOURCE, TABLES
from arclog.playbook.schema import (
    ACTION,
    ADMIT_THEN,
    EMIT,
    INPUT,
    ON_SUCCESS,
    TASK,
    TASK_POLICY,
    root_field,
)

PAGE = Path(__file__).parents[2] / "docs" / "playbook.md"
_HEADING = "## Every key\n"
_INTRODUCTION = """
<!-- Drawn from src/arclog/playbook/schema.py by tests/docs; change that, then run `./x pytest tests/docs --redraw`. -->

A star marks a required key. An outer `spec` (of executor, step or loop) also takes the task spec keys of every kind.
"""
#: Objects with a section of their own further below, whatever contains them.
_SHARED = ("retry", "emit")


def playbook_page() -> str:
    """The page with this section drawn anew."""
    text = PAGE.read_text(encoding="utf-8")
    before, heading, _ = text.partition(_HEADING)
    assert heading, f"docs/playbook.md has no heading {_HEADING.strip()!r}"
    return before + heading + _INTRODUCTION + "".join(_sections())


def _sections() -> Iterator[str]:
    root = root_field({})
    top = {field.name: field for field in root.fields or ()}
    executor = _inner(top["executor"])["spec"]
    yield _table("playbook", root.fields or ())
    yield from _nested("metadata", top["metadata"])
    yield from _nested("executor.spec", executor)
    yield _table("executor.spec.inputs.NAME", INPUT.fields or ())
    yield from _keychain()
    step = top["workflow"].items
    assert step is not None
    yield _table("workflow[] (a step)", step.fields or ())
    for name in ("spec", "loop", "next"):
        yield from _nested(f"step.{name}", _inner(step)[name])
    yield _table("step.spec.policy.admit.rules[].then", ADMIT_THEN)
    yield _table("task", TASK)
    spec = {field.name: field for field in (*COMMON_SPEC_FIELDS, TASK_POLICY, *ON_SUCCESS)}
    yield _table("task.spec (every kind)", spec.values())
    note = "Also in the `spec` of steps and loops; in `executor.spec`, `result` is the result of the execution.\n\n"
    yield from _nested("task.spec.result", spec["result"], note)
    yield from _nested("task.spec.policy", TASK_POLICY)
    yield _table("task.spec.policy.rules[].then", ACTION)
    yield _table("retry (in the spec of executor, step, loop or task)", RETRY.fields or ())
    yield _table("emit (in the policy of executor or step)", EMIT.fields or ())


def _keychain() -> Iterator[str]:
    own = [field for field in TABLES["env"] if field not in KINDS["env"]]
    yield _table("keychain[]", own, "Further keys depend on the kind.\n\n")
    for kind, fields in KINDS.items():
        yield _table(f"keychain[] of kind {kind}", fields)
    yield _table("keychain[]: the source of a secret", SOURCE, "Exactly one of `env`, `file` and `secret`.\n\n")


def _inner(field: Field) -> dict[str, Field]:
    return {inner.name: inner for inner in field.fields or ()}


def _nested(title: str, field: Field, note: str = "") -> Iterator[str]:
    """A table for an object, followed by those of the objects inside it."""
    yield _table(title, field.fields or (), note)
    for inner in field.fields or ():
        if inner.name in _SHARED or (inner.name == "result" and not title.startswith("task")) or inner.name == "inputs":
            continue
        if inner.fields:
            yield from _nested(f"{title}.{inner.name}", inner)
        elif inner.items is not None and inner.items.fields:
            suffix = ".NAME" if inner.type == "object" else "[]"
            yield from _nested(f"{title}.{inner.name}{suffix}", inner.items)


def _table(title: str, fields: Iterable[Field], note: str = "") -> str:
    rows = "".join(
        f"| `{row.name}`{' *' if row.required else ''} | {_type(row)} | {_meaning(row)} |\n" for row in fields
    )
    return f"\n### {title}\n\n{note}| key | type | meaning |\n| --- | --- | --- |\n{rows}"


def _type(field: Field) -> str:
    return " or ".join(field.types)


def _meaning(field: Field) -> str:
    """The text of a field with its limits: 'One of `a`, `b`; default `a`.'"""
    facts = []
    if len(field.choices) > 1:
        facts.append("one of " + ", ".join(f"`{choice}`" for choice in field.choices))
    if field.default is not None:
        facts.append(f"default `{_value(field.default)}`")
    if field.exclusive_min is not None:
        facts.append(f"more than {field.exclusive_min:g}")
    if field.minimum is not None:
        facts.append(f"at least {_value(field.minimum)}")
    if field.maximum is not None and field.maximum != LONGEST_S:
        facts.append(f"at most {_value(field.maximum)}")
    limits = "; ".join(facts)
    return " ".join(part for part in (field.doc, limits[:1].upper() + limits[1:] + "." if limits else "") if part)


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else str(value)
