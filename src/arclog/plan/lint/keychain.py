"""Lint of the keychain: unknown names, credentials that a tool cannot use, and secrets that would be logged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from arclog.expr.budget import Failure
from arclog.expr.compiler.parse import parse_template
from arclog.model.inputs import secret_names
from arclog.plan.compile import Text
from arclog.playbook.canon import Playbook, Task, Webhook
from arclog.playbook.schema import has_template
from arclog.playbook.walk import Findings

#: The most likely field of an entry by its kind, if it is not `value`.
_FIELDS = {"bearer": "token", "oauth2": "token", "basic": "password", "postgres_credential": "password"}
#: Maximum length of a text that is linted; longer ones are generated.
_LONGEST = 10_000
#: Kinds of entries that have a `value`.
_SINGLE_TEXTS = ("secret", "env", "file", "secret_manager", "bearer")


def check_keychain(playbook: Playbook, texts: Sequence[Text], findings: Findings) -> None:
    _secret_inputs(playbook, texts, findings)
    kinds = {str(entry.get("name")): str(entry.get("kind")) for entry in playbook.keychain}
    for step in playbook.steps:
        for task in step.tasks:
            _auth(task, kinds, findings)
    for webhook in playbook.webhooks:
        _signing(webhook, kinds, findings)
    for text in texts:
        if text.where != "task" or "keychain" not in text.free:
            continue
        kind = playbook.steps[text.step].tasks[text.task].kind
        if kind.runs_on == "engine":
            message = f"keychain cannot be used in a task of kind {kind.name}: its config is written to the log"
            hint = "declare the keychain entry in the playbook that uses it" if kind.name == "playbook" else ""
            findings.add("keychain-misplaced", message, text.at, hint)
        for name in sorted(set(_printed(text.source)) & set(kinds)):
            field = _FIELDS.get(kinds[name], "value")
            message = f"keychain.{name} is a map of fields: it cannot be a part of a text"
            findings.add("keychain-text", message, text.at, f"name the field: {{{{ keychain.{name}.{field} }}}}")
        for name in sorted({path[1] for path in text.paths if path[0] == "keychain" and len(path) > 1} - set(kinds)):
            message = f"the keychain has no entry {name!r}"
            findings.add("unknown-keychain", message, text.at, _declare(name, kinds, findings))


def _secret_inputs(playbook: Playbook, texts: Sequence[Text], findings: Findings) -> None:
    """Report secret inputs that are read from the workload instead of the keychain. The log contains the workload."""
    secrets = set(secret_names(playbook.inputs))
    for text in texts if secrets else ():
        read = {path[1] for path in text.paths if path[0] == "workload" and len(path) > 1} | text.free
        taken = {step.name for step in playbook.steps}
        if text.step >= 0:
            taken |= {task.name for task in playbook.steps[text.step].tasks}
        for name in sorted(read & secrets - taken):
            hint = f"in a field of the task that needs it: {{{{ keychain.{name}.value }}}}"
            findings.add(
                "keychain-misplaced", f"{name} is a secret input, which the workload does not have", text.at, hint
            )


def _printed(source: str) -> Iterator[str]:
    """Return entries that are used as a whole inside a longer text, or joined to one with `~`."""
    if len(source) > _LONGEST:
        return
    outputs = [node for node in _parsed(source) if type(node).__name__ == "Output"]
    parts = [part for node in outputs for part in node.iter_child_nodes()]
    mixed = len([part for part in parts if getattr(part, "data", "x").strip()]) > 1
    for part in parts:
        yield from _whole_entry(part) if mixed else ()
    while parts:
        node = parts.pop()
        below = list(node.iter_child_nodes())
        if type(node).__name__ == "Concat":
            for part in below:
                yield from _whole_entry(part)
        parts += below


def _whole_entry(node: Any) -> Iterator[str]:
    """Return the name of the entry that an expression stands for."""
    inner = getattr(node, "node", None)
    if getattr(inner, "name", None) != "keychain":
        return
    key = getattr(node, "attr", None) or getattr(getattr(node, "arg", None), "value", None)
    if isinstance(key, str):
        yield key


def _parsed(source: str) -> list[Any]:
    try:
        return list(parse_template(source))
    except Failure:
        return []  # reported elsewhere


def _auth(task: Task, kinds: dict[str, str], findings: Findings) -> None:
    name = task.config.get("auth")
    if not isinstance(name, str):
        return
    path = task.locate(("auth",))
    takes = task.kind.auth
    if takes == ():
        message = f"a task of kind {task.kind.name} has no use for auth"
        hint = f"use a field of the entry in one of the task's own: {{{{ keychain.{name}.… }}}}"
        findings.key("auth-unused", message, path, "" if has_template(name) else hint, "warning")
    if has_template(name):
        return
    if name not in kinds:
        findings.value(
            "unknown-keychain", f"auth: the keychain has no entry {name!r}", path, _declare(name, kinds, findings)
        )
    elif takes and kinds[name] not in takes:
        message = f"auth: a task of kind {task.kind.name} cannot use an entry of kind {kinds[name]}"
        findings.value("auth-kind", message, path, f"it takes {', '.join(takes)}")


def _signing(webhook: Webhook, kinds: dict[str, str], findings: Findings) -> None:
    """Check that a webhook is signed with an entry that is a single text."""
    name, path = webhook.secret, (*webhook.path, "secret")
    if name and name not in kinds:
        message = f"webhook.secret: the keychain has no entry {name!r}"
        findings.value("unknown-keychain", message, path, _declare(name, kinds, findings))
    elif name and kinds[name] not in _SINGLE_TEXTS:
        message = f"webhook.secret: an entry of kind {kinds[name]} is not a single text to sign with"
        findings.value("auth-kind", message, path, f"it takes {', '.join(_SINGLE_TEXTS)}")


def _declare(name: str, kinds: dict[str, str], findings: Findings) -> str:
    near = findings.nearest(name, kinds)
    return f"did you mean {near}?" if near else f"declare it: keychain: [{{name: {name[:60]}, kind: …}}]"
