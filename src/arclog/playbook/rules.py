"""Rules, as admission and task policies write them: `when` and `then`, the first that matches counts, an else is last."""

from __future__ import annotations

from typing import Any

from arclog.model.data.shapes import Field
from arclog.playbook.canon import Rule
from arclog.playbook.schema import ACTION, ACTION_KEYS, ELSE_RULE, EMPTY_ELSE_RULE, RULE
from arclog.playbook.walk import Walker
from arclog.playbook.yaml.document import Path
from arclog.playbook.yaml.lenient import as_list, as_map, as_text

_A_MAP = Field("rule", "object")


def read_rules(walker: Walker, rules: Any, path: Path) -> list[Rule]:
    """`{when, then}` … and last `{else: {then}}` or `{else: null, then}`."""
    found: list[Rule] = []
    for index, raw in enumerate(as_list(rules)):
        here = (*path, index)
        if not walker.walk(raw, _A_MAP, here, "rule"):
            continue
        if "else" in raw:
            rule = _else_rule(walker, raw, here)
            if index < len(rules) - 1:
                walker.findings.key(
                    "else-not-last",
                    "else must be the last rule: the ones after it can never match",
                    (*here, "else"),
                    "move it to the end",
                )
        else:
            walker.keys(raw, RULE, here, "rule")
            when = raw.get("when")
            usable = isinstance(when, (str, bool))
            rule = Rule(when if usable else False, as_map(raw.get("then")), here, (*here, "then"), flawed=not usable)
            if not isinstance(raw.get("then"), dict):
                continue
        if rule is not None:
            found.append(rule)
    return found


def _else_rule(walker: Walker, raw: dict[str, Any], path: Path) -> Rule | None:
    body = raw["else"]
    if body is None:
        good = walker.keys(raw, EMPTY_ELSE_RULE, path, "rule")
        return Rule(None, raw["then"], path, (*path, "then")) if good else None
    good = walker.keys(raw, ELSE_RULE, path, "rule")
    return Rule(None, body["then"], path, (*path, "else", "then")) if good else None


def reserved_keys(walker: Walker, values: dict[str, Any], patch: str, path: Path) -> None:
    """Refuse keys of ctx or iter that an author may not set."""
    for key in values:
        if key.startswith("_"):
            message = f"{patch}: keys that begin with _ are arclog's own: {key!r}"
            walker.findings.key("reserved-name", message, (*path, key))


def read_action(walker: Walker, rule: Rule) -> None:
    """Check what a task rule does, and keep the keys that are known."""
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
