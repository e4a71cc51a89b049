"""Rewrites older forms of playbooks to the current language, in the text itself: comments and layout are kept.

Invariants: a rule changes a form only if its meaning is certain. Other forms are listed with their lines, by the rule
that found them or by `check` afterwards. A second migration changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from arclog.authoring.migration import cases, flat, keys, policies, routing, sinks, tasks, templates, variables
from arclog.authoring.migration.source import Change, KnownKinds, Rule, Source, changed
from arclog.authoring.playbook_files import FilesBeside
from arclog.authoring.spans import Edit, column_of, compose, entries, entry, is_flow, items, scalar, start
from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.model.errors import Finding, Position
from arclog.plan.build import build

# ── keychain ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Credentials that a playbook uses and does not declare.


def _credential_name(source: Source, auth: str | None) -> str | None:
    """Return the entry that a task's auth names; for `{{ workload.x }}`, its default."""
    match = re.fullmatch(r"\{\{\s*workload\.(\w+)\s*\}\}", auth or "")
    if match is None:
        return auth
    default = scalar(entry(source.root, "workload", match[1]))
    return default if default and default.isidentifier() else auth


def undeclared_credentials(source: Source) -> Iterator[Change]:
    """Declare the keychain entry of `auth: name`, if the tool accepts one kind of entry (postgres: its own)."""
    keychain = entry(source.root, "keychain")
    declared = {scalar(entry(node, "name")) for node in items(keychain)}
    needed: dict[str, str] = {}
    for task in source.all_tasks():
        name, kind = _credential_name(source, scalar(entry(task, "auth"))), source.kind_of(task)
        if not name or "{{" in name or kind is None or name in declared:
            continue
        takes = kind.auth or ()
        wanted = "postgres_credential" if kind.name == "postgres" else takes[0] if len(takes) == 1 else ""
        if not wanted or needed.get(name, wanted) != wanted:
            return
        needed[name] = wanted
    place = next((key for name, key, _ in entries(source.root) if name in ("workflow", "workload", "executor")), None)
    if not needed or place is None:
        return
    entries_of = [f"- {{name: {name}, kind: {kind}}}\n" for name, kind in needed.items()]
    if keychain is None:
        source.note(place, "keychain declared")
        yield Edit(start(place), start(place), f"keychain:\n{''.join(f'  {line}' for line in entries_of)}\n")
    elif items(keychain) and not is_flow(keychain):
        source.note(keychain, "keychain entry declared")
        room = " " * column_of(keychain)
        yield source.put(keychain, "".join(f"{room}{line}" for line in entries_of))


# ── migrate ───────────────────────────────────────────────────────────────────────────────────────────────────────────

#: Findings of `check` that only report an outdated form.
_GENERAL = frozenset({"legacy-form", "unknown-key", "unknown-name"})
#: Warnings of `check` that a migrated playbook must not have: the meaning is unclear, and a run would fail.
_UNKNOWN = frozenset({"unknown-name", "workload-template"})
#: The most rounds over all rules, since one form can contain another.
_ROUNDS = 30


def _both(first: Rule, second: Rule) -> Rule:
    """Combine two rules that are independent of each other's changes, so that the text is parsed once after both."""
    return lambda source: chain(first(source), second(source))


#: Each rule with words, of which a text must contain one; () for every text.
_RULES: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (flat.root_names, ("name", "context", "spec", "noetl.io/v1")),
    (keys.root_keys, ("steps", "vars")),
    (flat.step_names, ("-",)),
    (flat.flat_steps, ("type", "tool", "call", "result")),
    (_both(keys.step_keys, tasks.labels), ()),
    (flat.saves, ("save",)),
    (tasks.workbook, ("workbook",)),
    (keys.task_config, ("spec",)),
    (keys.task_keys, ()),
    (keys.empty_auth, ("auth",)),
    (flat.credentials, ("auth",)),
    (keys.loop_keys, ("loop",)),
    (keys.conditions, ("expr",)),
    (keys.timeouts, ("timeout",)),
    (policies.evaluations, ("eval",)),
    (policies.retries, ("retry",)),
    (policies.else_rules, ("else",)),
    (policies.backoffs, ("backoff",)),
    (tasks.step_args, ("args",)),
    (routing.admission, ("when",)),
    (cases.cases, ("case",)),
    (sinks.step_sinks, ("sink",)),
    (routing.compared_texts, ("when",)),
    (_both(tasks.returns, routing.arcs_of_lists), ("return", "next")),
    (routing.tools, ()),
    (templates.answers, ("result", "response", "this")),
    (variables.argument_names, ("args",)),
    (variables.argument_parameters, ("args",)),
    (templates.names, ("{{",)),
    (templates.data, ("args",)),
    (variables.sets, ("set", "vars")),
    (templates.envelopes, (".data.",)),
    (variables.kept_names, ("set_ctx", "set_iter")),
    (policies.guards, ("outcome.error",)),
    (templates.sql_tables, ("table",)),
    (templates.sql_statements, ("command",)),
    (routing.end_step, ("end",)),
    (undeclared_credentials, ("auth",)),
)


@dataclass(slots=True)
class Migration:
    """The result of migrating a text."""

    text: str
    #: the changes: line in the original text, and description
    changes: list[tuple[int, str]] = field(default_factory=list)
    #: forms that only the author can decide
    undecided: list[Finding] = field(default_factory=list)


def _compiles(task: Any) -> bool:
    """Return whether the code of a task, if it has some, can be compiled."""
    try:
        compile(scalar(entry(task, "code")) or "", "<task>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def migrate(text: str, file: str, kinds: Mapping[str, KindSpec], settings: Settings | None = None) -> Migration:
    """Migrate a playbook's text. A byte order mark is kept, and lines end as most of them did."""
    mark = "\ufeff" if text.startswith("\ufeff") else ""  # the parser does not count it
    done = _migrated(text.removeprefix(mark).replace("\r\n", "\n"), file, kinds, settings)
    if not done.changes:
        done.text = text
        return done
    if text.count("\r\n") * 2 > text.count("\n"):
        done.text = done.text.replace("\n", "\r\n")
    done.text = mark + done.text
    return done


def _migrated(text: str, file: str, kinds: Mapping[str, KindSpec], settings: Settings | None) -> Migration:
    done = Migration(text)
    root = compose(text)
    known_kinds = KnownKinds(kinds)
    source = Source(text, root, known_kinds)
    undecided: list[Finding] = []
    #: by rule: the text in which it had nothing to change, and the forms that it left there
    settled: dict[Rule, tuple[str, list[Finding]]] = {}
    for _ in range(_ROUNDS if root is not None else 0):
        before, undecided = done.text, []
        for rule, words in _RULES:
            for word in words:
                if word in done.text:
                    break
            else:
                if words:
                    continue
            if rule not in settled or settled[rule][0] != done.text:
                source.notes, source.undecided = [], []
                made = changed(done.text, list(rule(source)))
                after = compose(made) if made != done.text else None
                if after is not None:
                    done.text = made
                    done.changes += source.notes
                    source = Source(done.text, after, known_kinds)
                    continue
                settled[rule] = (done.text, source.undecided)
            undecided += settled[rule][1]
        if done.text == before:
            break
    else:
        if root is not None:  # the rules undo or repeat each other: return the text unchanged
            message = "the older forms of this file could not be rewritten together"
            undecided = [
                Finding("undecided", message, Position(1, 1), hint="rewrite those that are listed below first")
            ]
            done.text, done.changes, source = text, [], Source(text, compose(text), known_kinds)
    beside = FilesBeside(settings or Settings()).of(file)
    # The lint for authors takes half as long again, and only code that does not compile is an error, so it is skipped
    # if possible.
    lints = not all(map(_compiles, source.all_tasks()))
    built = build(done.text, file, kinds, settings, beside, thorough=lints)
    errors = [
        *built.errors,
        *(
            Finding(finding.code, finding.message, finding.at, hint=finding.hint)
            for finding in built.findings
            if finding.code in _UNKNOWN
        ),
    ]
    done.undecided = sorted(_without_repetition(errors, undecided), key=lambda finding: finding.at)
    return done


def _without_repetition(errors: Sequence[Finding], undecided: Sequence[Finding]) -> list[Finding]:
    """Return one finding for each line. The finding of a rule is more specific than that of an older form."""
    met = {finding.at.line for finding in undecided}
    kept = [finding for finding in errors if finding.at.line not in met or finding.code not in _GENERAL]
    lines = {finding.at.line for finding in kept}
    return [*kept, *(finding for finding in undecided if finding.at.line not in lines)]
