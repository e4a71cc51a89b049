"""What becomes of a task's outcome: retries, rules, and what they set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from arclog.authoring.migration.retries import ERROR
from arclog.authoring.migration.source import COMMENT, Change, Source
from arclog.authoring.spans import (
    Edit,
    column_of,
    end,
    entries,
    entry,
    is_flow,
    is_list,
    is_map,
    items,
    raw,
    scalar,
    scalars,
    start,
)

#: A part of an error that is compared, which an ok outcome does not have.
_COMPARED = re.compile(r"outcome\.error\.\w+\s*(==|[<>]|in\b)|(==|[<>]=?|\bin)\s*outcome\.error\.")


def evaluations(source: Source) -> Iterator[Change]:
    """`eval: [{when, do, …}]` of a task without a spec."""
    for task in source.all_tasks():
        for name, key, value in entries(task):
            if name != "eval" or entry(task, "spec") is not None or not is_list(value):
                continue
            if COMMENT.search(raw(source.text, value)):
                continue
            rules = [_eval_rule(source, node) for node in items(value)]
            if rules and all(rules):
                source.note(key, "eval → spec.policy.rules")
                yield Edit(start(key), end(source.text, value), f"spec: {{policy: {{rules: [{', '.join(rules)}]}}}}")


def _eval_rule(source: Source, node: Any) -> str:
    found = {name: value for name, _, value in entries(node)}
    if any(not is_flow(value) and scalar(value) is None for value in found.values()):
        return ""
    when = found.pop("when", None) or found.pop("expr", None)
    other = found.pop("else", None)
    then = found.pop("then", None)
    if then is not None and found:
        return ""
    body = {name: raw(source.text, value) for name, value in found.items()}
    if then is not None:
        action = raw(source.text, then)
    elif is_map(other):
        action = raw(source.text, other)
    elif "do" in body:
        action = f"{{{', '.join(f'{name}: {value}' for name, value in body.items())}}}"
    else:
        return ""
    if when is None:
        return f"{{else: {{then: {action}}}}}" if other is not None or then is None else ""
    condition = raw(source.text, when)
    if scalar(when) is None or "\n" in condition:
        return ""
    if when.style not in ("'", '"'):
        condition = '"' + condition.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{{when: {condition}, then: {action}}}"


def rules_of(task: Any) -> list[Any]:
    return [node for node in items(entry(task, "spec", "policy", "rules")) if is_map(node)]


def else_rules(source: Source) -> Iterator[Change]:
    """`else: {do: …}` is `else: {then: {do: …}}`."""
    for task in source.all_tasks():
        for rule in rules_of(task):
            for name, _, value in entries(rule):
                if name != "else" or not is_map(value) or entry(value, "then") is not None or not value.value:
                    continue
                source.note(value, "else: {…} → else: {then: {…}}")
                if is_flow(value):
                    yield Edit(start(value), end(source.text, value), f"{{then: {raw(source.text, value)}}}")
                    continue
                first = value.value[0][0]
                lines = source.lines_at(first, value, column_of(first) + 2)
                if lines is not None and source.has_own_lines(first):
                    whole = source.removal(first, value)
                    yield Edit(whole.start, whole.end, f"{' ' * column_of(first)}then:\n{lines}")


def backoffs(source: Source) -> Iterator[Change]:
    for task in source.all_tasks():
        for rule in rules_of(task):
            word = entry(rule, "then", "backoff")
            if scalar(word) in ("fixed", "constant"):
                source.note(word, f"backoff: {scalar(word)} → none")
                yield Edit(start(word), end(source.text, word), "none")


def guards(source: Source) -> Iterator[Change]:
    """A condition that reads the error of an outcome which may be ok: `outcome.error.x` alone."""
    for step in source.steps:
        known: set[tuple[str | int, ...]] = set()
        for path, node in scalars(step):
            if path[-1] != "when" or path[0] not in ("tool", "next") or node.style in ("|", ">"):
                continue
            if re.search(r"outcome\.status\s*==\s*'+ok'+", str(node.value)):
                known.add(path[:-2])  # the rules after it see errors alone
            if path[:-2] in known:
                continue
            text = str(node.value).strip()
            bare = text[2:-2].strip() if text.startswith("{{") and text.endswith("}}") else text
            if not _COMPARED.search(bare) or "{" in bare or "\n" in raw(source.text, node):
                continue
            if re.search(r"outcome\.status|default|defined|!=|\bnot\b|outcome\.error\s+and|event\.name", bare):
                continue
            own = raw(source.text, node)
            at = own.find(bare)
            if at >= 0:
                source.note(node, "outcome.error is guarded")
                joined = f"({bare})" if re.search(r"\b(or|if)\b", bare) else bare
                yield Edit(
                    start(node) + at,
                    start(node) + at + len(bare),
                    f"{ERROR.replace(chr(39), _quote(node))} and {joined}",
                )


def _quote(node: Any) -> str:
    """The quote to write inside a scalar."""
    return "''" if node.style == "'" else "'"
