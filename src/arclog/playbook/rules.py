"""Rules of admission and of task policies: `when` and `then`; the first match decides, an else is last."""

from __future__ import annotations

from typing import Any

from arclog.expr.compiler.parse import has_markers
from arclog.model.data.shapes import Field
from arclog.playbook.canon import Rule, Task
from arclog.playbook.document import Path, as_list, as_map, as_text
from arclog.playbook.schema import ACTION, ACTION_KEYS, ELSE_RULE, EMPTY_ELSE_RULE, RULE
from arclog.playbook.walk import Walker

_A_MAP = Field("rule", "object")


def read_rules(walker: Walker, rules: Any, path: Path) -> list[Rule]:
    """Read `{when, then}` … and last `{else: {then}}` or `{else: null, then}`."""
    rules_read: list[Rule] = []
    for index, raw in enumerate(as_list(rules)):
        rule_path = (*path, index)
        if not walker.walk(raw, _A_MAP, rule_path, "rule"):
            continue
        if "else" in raw:
            rule = _else_rule(walker, raw, rule_path)
            if index < len(rules) - 1:
                walker.findings.key(
                    "else-not-last",
                    "else must be the last rule: the ones after it can never match",
                    (*rule_path, "else"),
                    "move it to the end",
                )
        else:
            walker.keys(raw, RULE, rule_path, "rule")
            when = raw.get("when")
            usable = isinstance(when, (str, bool))
            rule = Rule(
                when if usable else False, as_map(raw.get("then")), rule_path, (*rule_path, "then"), flawed=not usable
            )
            if not isinstance(raw.get("then"), dict):
                continue
        if rule is not None:
            rules_read.append(rule)
    return rules_read


def _else_rule(walker: Walker, raw: dict[str, Any], path: Path) -> Rule | None:
    body = raw["else"]
    if body is None:
        good = walker.keys(raw, EMPTY_ELSE_RULE, path, "rule")
        return Rule(None, raw["then"], path, (*path, "then")) if good else None
    good = walker.keys(raw, ELSE_RULE, path, "rule")
    return Rule(None, body["then"], path, (*path, "else", "then")) if good else None


def reserved_keys(walker: Walker, values: dict[str, Any], patch: str, path: Path) -> None:
    """Report keys of ctx or iter that an author may not set."""
    for key in values:
        if key.startswith("_"):
            message = f"{patch}: keys that start with _ are reserved for arclog: {key!r}"
            walker.findings.key("reserved-name", message, (*path, key))


def read_action(walker: Walker, rule: Rule) -> None:
    """Check the action of a task rule, and keep the known keys."""
    then, path = rule.then, rule.then_path
    walker.keys(then, ACTION, path, "then")
    do = as_text(then.get("do"), "continue")
    for key, owner in ACTION_KEYS.items():
        if key in then and do != owner:
            walker.findings.key(
                "action-key",
                f"'{key}' has a meaning only with do: {owner}",
                (*path, key),
                f"then: {{do: {owner}, …}}",
            )
    if do == "jump" and "to" not in then:
        walker.findings.value("missing-key", "do: jump needs the key 'to'", path, "to: LABEL of a task in this list")
    for patch in ("set_iter", "set_ctx"):
        reserved_keys(walker, as_map(then.get(patch)), patch, (*path, patch))
    rule.then = {key: value for key, value in then.items() if any(field.name == key for field in ACTION)}


# Short forms of a task's spec, compiled to the rules of a task policy: `retry`, `set_ctx` and `set_iter`; and the
# conditions of `kind: assert`, compiled to templates.
#
# Invariants: every short form could be written as rules; a short form never replaces a task's own policy.


IS_OK = "outcome.status == 'ok'"
IS_ERROR = "outcome.status == 'error'"
#: Keys of `task.spec` that are compiled here and are not part of the effective spec.
COMPILED = frozenset({"retry", "set_ctx", "set_iter"})


def short_rules(task: Task, retry: dict[str, Any] | None, sets: dict[str, Any], path: Path) -> None:
    """Add the rules of the task's short forms. `path` is the path of its spec."""
    if task.rules is None:
        if retry is None and not sets:
            return
        task.rules = _retry_rules(retry, path) if retry is not None else []
        if sets and retry is not None:
            task.rules.append(Rule(None, {"do": "continue", **sets}, path, path))
        elif sets:
            task.rules = [
                Rule(f"{{{{ {IS_OK} }}}}", {"do": "continue", **sets}, path, path),
                Rule(None, {"do": "fail"}, path, path),
            ]
    elif sets:
        task.rules = [part for rule in task.rules for part in _with_sets(rule, sets)]
        if all(rule.when is not None for rule in task.rules):
            task.rules.append(Rule(f"{{{{ {IS_OK} }}}}", {"do": task.on_unmatched, **sets}, path, path))


def _retry_rules(retry: dict[str, Any], path: Path) -> list[Rule]:
    kinds = [kind for kind in as_list(retry.get("on")) if isinstance(kind, str)]
    again = "outcome.error.retryable"
    if kinds:
        again = f"({again} or outcome.error.kind in [{', '.join(repr(kind) for kind in kinds)}])"
    then: dict[str, Any] = {"do": "retry", **{key: value for key, value in retry.items() if key != "on"}}
    if "delays" in then and "attempts" not in then:
        then["attempts"] = len(as_list(then["delays"])) + 1
    where = (*path, "retry")
    return [
        Rule(f"{{{{ {IS_ERROR} and {again} }}}}", then, where, where),
        Rule(f"{{{{ {IS_ERROR} }}}}", {"do": "fail"}, where, where),
    ]


def _with_sets(rule: Rule, sets: dict[str, Any]) -> list[Rule]:
    """Return the rule for ok outcomes with the additional sets, and the original rule for errors.

    The rule's own sets win.
    """
    more = {key: {**values, **as_map(rule.then.get(key))} for key, values in sets.items()}
    if rule.flawed or rule.when is False:
        return [rule]
    when = IS_OK if rule.when is None or rule.when is True else f"{IS_OK} and ({bare(str(rule.when))})"
    on_ok = Rule(f"{{{{ {when} }}}}", {**rule.then, **more}, rule.path, rule.then_path)
    return [on_ok, rule]


def bare(when: str) -> str:
    """Return the expression of a condition, without the braces around it."""
    text = when.strip()
    if has_markers(text) and text.startswith("{{") and text.endswith("}}"):
        # A sign at a brace is Jinja's white space control.
        return text[2:-2].removeprefix("-").removeprefix("+").removesuffix("-").removesuffix("+").strip()
    return text


def assertions(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config of an assert task: each condition as a boolean template, and its text.

    The message is rendered only if a condition does not hold.
    """
    that = config.get("that")
    conditions = [
        str(item).lower() if isinstance(item, bool) else bare(item)
        for item in (that if isinstance(that, list) else [that])
        if isinstance(item, str | bool)
    ]
    made: dict[str, Any] = {
        **config,
        "that": [f"{{{{ true if ({condition}) else false }}}}" for condition in conditions],
        "text": conditions,
    }
    if isinstance(config.get("message"), str):
        holds = " and ".join(f"({condition})" for condition in conditions) or "true"
        made["message"] = f"{{% if {holds} %}}{{% else %}}{config['message']}{{% endif %}}"
    return made
