"""Handling of a task's outcome: retries, rules, and the values that they set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from arclog.authoring.migration.conditions import conjuncts, expression_of, quoted, renamed
from arclog.authoring.migration.source import COMMENT, Change, Source, Undecided
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

# ── retries ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# `retry` of older releases: how often, how long between, and after what.

ERROR = "outcome.status == 'error'"
_FAIL = f"{{when: {quoted(ERROR)}, then: {{do: fail}}}}"
_GO_ON = "{else: {then: {do: continue}}}"
_WORDS = {
    "attempts": "attempts",
    "max_attempts": "attempts",
    "delay": "delay",
    "delay_seconds": "delay",
    "backoff_seconds": "delay",
    "initial_delay": "delay",
    "max_delay": "max_delay",
    "backoff": "backoff",
}
#: Older names of errors, and the current kinds.
_ERROR_KINDS = {
    "timeout": "timeout",
    "connection": "connection",
    "connection_error": "connection",
    "rate_limit": "rate_limit",
    "server_error": "server_error",
}
_BACKOFFS = {"none": "none", "fixed": "none", "constant": "none", "linear": "linear", "exponential": "exponential"}
_HINT = "spec: {retry: {attempts: 3, delay: 1.0, backoff: exponential}}, or rules with do: retry"


def retries(source: Source) -> Iterator[Change]:
    """`retry` of a task without a policy, and of a step with one task."""
    for owner, task in [
        *((task, task) for task in source.all_tasks()),
        *((step, tasks[0]) for step in source.steps if len(tasks := list(source.tasks(step))) == 1),
    ]:
        for name, key, value in entries(owner):
            if name != "retry" or entry(task, "spec", "policy") is not None:
                continue
            try:
                if scalar(value) == "false":
                    if source.has_own_lines(key):
                        source.note(key, "retry: false is how it is")
                        yield source.removal(key, value)
                    continue
                rules = rules_of_retry(value, scalar(entry(task, "kind")) or "", key)
            except Undecided as why:
                source.leave(why.node, why.message, why.hint)
                continue
            yield from _moved(source, owner, task, key, value, rules)


def _moved(source: Source, owner: Any, task: Any, key: Any, value: Any, rules: list[str]) -> Iterator[Change]:
    text = f"{{rules: [{', '.join(rules)}]}}"
    inside = source.comments(start(key), end(source.text, value))
    if owner is task and entry(task, "spec") is None and not inside:
        source.note(key, "retry → spec.policy.rules")
        yield Edit(start(key), end(source.text, value), f"spec: {{policy: {text}}}")
    elif source.has_own_lines(key):
        added = source.put_in_spec(task, "policy", text)
        if added is not None:
            source.note(key, "retry → spec.policy.rules")
            yield (source.removal(key, value), added)


def rules_of_retry(node: Any, kind: str, key: Any) -> list[str]:
    """Return the rules of a task's policy that are equivalent to a `retry`. Raises Undecided."""
    if is_list(node):
        rules = []
        for policy in items(node):
            if {name for name, _, _ in entries(policy)} != {"when", "then"} or not is_map(entry(policy, "then")):
                raise Undecided(policy, "retry: an entry is {when, then}", _HINT)
            condition = _condition(entry(policy, "when"), kind)
            rules.append(_retry_rule(entry(policy, "then"), condition, key))
        return [*rules, _FAIL, _GO_ON]
    if not is_map(node):
        return [retry_rule(node, "", key), _GO_ON]
    which = entry(node, "retry_when")
    until = entry(node, "stop_when")
    rules = [f"{{when: {quoted(_condition(until, kind))}, then: {{do: continue}}}}"] if until is not None else []
    if which is not None:
        rules += [_retry_rule(node, _condition(which, kind), key), _FAIL]
    else:
        chosen = _errors_chosen(node)
        rules.append(retry_rule(node, chosen, key))
        rules += [_FAIL] if chosen else []
    return [*rules, _GO_ON]


def retry_rule(node: Any, which: str, key: Any) -> str:
    """Return a rule that retries after errors, those of `which` or all. Raises Undecided."""
    action, _ = _action(node, key)
    condition = f"{ERROR} and {which}" if which else ERROR
    return f"{{when: {quoted(condition)}, then: {action}}}"


def _retry_rule(node: Any, condition: str, key: Any) -> str:
    """Return a rule that retries while a condition holds, which may also hold for successful outcomes."""
    action, attempts = _action(node, key)
    if ERROR not in condition:
        joined = (
            f"({condition})" if len(conjuncts(condition)) == 1 and re.search(r"\b(or|if)\b", condition) else condition
        )
        if _only_of_errors(condition):
            condition = f"{ERROR} and {joined}"
        else:  # the last result counts, and is not a failure
            condition = f"_attempt < {attempts} and {joined}"
    return f"{{when: {quoted(condition)}, then: {action}}}"


def _only_of_errors(condition: str) -> bool:
    """Return whether a condition tests for an HTTP status of an error."""
    return any(
        match and int(match[1]) >= 400
        for part in conjuncts(condition)
        for match in [re.fullmatch(r"\(?outcome\.http\.status(?: or 0\))? (?:>=|>|==) (\d+)", part)]
    )


def _condition(node: Any, kind: str) -> str:
    """A condition on an attempt, in names of today. Raises Undecided."""
    text = expression_of(node)
    none = r"(?:None|none|null)"
    text = re.sub(rf"(?<![\w.])error\s*(?:!=\s*{none}|is\s+defined|is\s+not\s+none)", ERROR, text)
    text = re.sub(rf"(?<![\w.])error\s*(?:==\s*{none}|is\s+not\s+defined|is\s+none)", "outcome.status == 'ok'", text)
    text = re.sub(r"(?<![\w.])success\s*(?:==\s*(?:False|false)|!=\s*(?:True|true))", ERROR, text)
    text = re.sub(r"(?<![\w.])success\s*==\s*(?:True|true)", "outcome.status == 'ok'", text)
    text = text.replace(f"{ERROR} or {ERROR}", ERROR)
    text = re.sub(r"(?<![\w.])status_code\b(?=\s*[<>])", "(outcome.http.status or 0)", text)
    text = re.sub(r"(?<![\w.])status_code\b", "outcome.http.status", text)
    text = re.sub(r"(?<![\w.])attempt\b", "_attempt", text)
    text = re.sub(r"(?<![\w.])data(?=[.\[\s|])", "outcome.data", text)
    if re.search(r"(?<![\w.])(success|max_attempts)\b", text):
        raise Undecided(node, "retry: a condition with unknown names", _HINT)
    return renamed(text, kind, "outcome", node)


def _errors_chosen(node: Any) -> str:
    """`retry_on` and `retry_on_status`: a condition on an error. Raises Undecided."""
    for name, _, value in entries(node):
        words = [scalar(part) or "" for part in items(value)]
        if name == "retry_on_status":
            if not words or not all(word.isdigit() for word in words):
                raise Undecided(value, "retry_on_status: a list of status codes", _HINT)
            return f"outcome.http.status in [{', '.join(words)}]"
        if name == "retry_on":
            if not words or not all(word in _ERROR_KINDS for word in words):
                raise Undecided(value, "retry_on: a list of error kinds", f"error kinds: {', '.join(_ERROR_KINDS)}")
            kinds = ", ".join(f"'{_ERROR_KINDS[word]}'" for word in words)
            return f"outcome.error.kind in [{kinds}]"
    return ""


_CONDITIONS = frozenset({"retry_when", "stop_when", "retry_on", "retry_on_status"})


def _action(node: Any, key: Any) -> tuple[str, int]:
    """`{do: retry, …}` and its number of attempts. Raises Undecided."""
    text = scalar(node)
    if text is not None:
        if text in ("true", "True"):
            return "{do: retry, attempts: 3, backoff: exponential}", 3
        if text.isdigit():
            return f"{{do: retry, attempts: {text}}}", int(text)
        raise Undecided(key, f"retry: {text!r} is not a number of attempts", _HINT)
    if not is_map(node):
        raise Undecided(key, "retry: neither a number nor a map", _HINT)
    parts: dict[str, str] = {}
    factor = ""
    for name, part, value in entries(node):
        word = scalar(value)
        if name in _CONDITIONS:
            continue
        if word is None or "{{" in word:
            raise Undecided(part, f"retry.{name}: not a plain value", _HINT)
        if name == "backoff_multiplier":
            factor = word
        elif name == "jitter":
            if word.lower() not in ("true", "false"):
                raise Undecided(part, "retry.jitter: not true or false", _HINT)
            parts |= {"jitter": "0.5"} if word.lower() == "true" else {}
        elif name == "backoff" and re.fullmatch(r"[\d.]+", word):
            parts["delay"] = word
        elif name == "backoff":
            if word not in _BACKOFFS:
                raise Undecided(part, f"retry.backoff: {word!r}", "one of none, linear, exponential")
            parts["backoff"] = _BACKOFFS[word]
        elif name in _WORDS:
            parts[_WORDS[name]] = word
        else:
            raise Undecided(part, f"retry.{name}: its meaning is not certain", _HINT)
    attempts = int(parts["attempts"]) if parts.get("attempts", "3").isdigit() and "attempts" in parts else 3
    if factor:
        parts |= _growing(parts, factor, attempts, key)
    elif entry(node, "initial_delay") is not None and "backoff" not in parts:
        parts["backoff"] = "exponential"  # the factor was 2 unless another was given
    if "delays" in parts:
        parts = {name: value for name, value in parts.items() if name not in ("delay", "max_delay", "backoff")}
    return f"{{do: retry, {', '.join(f'{name}: {value}' for name, value in parts.items())}}}", attempts


def _growing(parts: dict[str, str], factor: str, attempts: int, key: Any) -> dict[str, str]:
    """Return delays that grow by a factor; those that no `backoff` can express are listed one by one."""
    if factor in ("1", "1.0", "2", "2.0"):
        return {"backoff": "none" if factor.startswith("1") else "exponential"}
    try:
        first, by, most = float(parts.get("delay", "1.0")), float(factor), float(parts.get("max_delay", "60"))
    except ValueError:
        raise Undecided(key, "retry: a delay is not a number", _HINT) from None
    if attempts > 20:
        raise Undecided(key, f"retry: {attempts} delays that grow by {factor}", "delays: [1, 1.5, 2.25] lists them")
    return {"delays": f"[{', '.join(f'{min(first * by**n, most):.6g}' for n in range(max(attempts - 1, 1)))}]"}


# ── policies ──────────────────────────────────────────────────────────────────────────────────────────────────────────

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
    fields = {name: value for name, _, value in entries(node)}
    if any(not is_flow(value) and scalar(value) is None for value in fields.values()):
        return ""
    when = fields.pop("when", None) or fields.pop("expr", None)
    other = fields.pop("else", None)
    then = fields.pop("then", None)
    if then is not None and fields:
        return ""
    body = {name: raw(source.text, value) for name, value in fields.items()}
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
        checked: set[tuple[str | int, ...]] = set()
        for path, node in scalars(step):
            if path[-1] != "when" or path[0] not in ("tool", "next") or node.style in ("|", ">"):
                continue
            if re.search(r"outcome\.status\s*==\s*'+ok'+", str(node.value)):
                checked.add(path[:-2])  # the rules after it see errors alone
            if path[:-2] in checked:
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
