"""The description of a tool kind: the fields of its tasks, its behavior, and where it runs.

`plan.compile` knows kinds only by this description; it never imports a tool.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.data.lazy import pattern
from arclog.model.data.shapes import LONGEST_S, Field
from arclog.model.errors import SettingsError
from arclog.model.outcome import ERROR_KINDS

#: Retries of a task without a policy; layered like every spec key.
RETRY = Field(
    "retry",
    "object",
    "Retries a task without a policy after an error that is retryable or whose kind is in `on`.",
    fields=(
        Field(
            "attempts",
            "integer",
            "Total number of attempts. Default: 3, or one more than the number of `delays`.",
            minimum=1,
        ),
        Field("delay", "number", "Seconds before the next attempt.", default=1.0, minimum=0, maximum=LONGEST_S),
        Field(
            "delays",
            "list",
            "Seconds before the second, third and further attempts, instead of `delay` and `backoff`. The last value is repeated.",
            items=Field("delay", "number", minimum=0, maximum=LONGEST_S),
        ),
        Field("backoff", "string", "How the delay grows.", default="none", choices=("none", "linear", "exponential")),
        Field(
            "max_delay", "number", "Upper limit of the delay, in seconds.", default=300.0, minimum=0, maximum=LONGEST_S
        ),
        Field(
            "jitter",
            "number",
            "Random part of the delay, as a fraction from 0 to 1.",
            default=0.0,
            minimum=0,
            maximum=1,
        ),
        Field(
            "on",
            "list",
            "Error kinds that are retried although they are not retryable.",
            items=Field("kind", "string", choices=tuple(ERROR_KINDS)),
        ),
    ),
)

#: Allowed names of files in `outputs`.
OUTPUT_NAME = pattern(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
#: Config key of kinds whose tasks have private folders.
OUTPUTS = Field(
    "outputs",
    "object",
    "Files that the task writes, as {name: path}. They are stored as results if the task succeeds; {{ task.files.name }} is the path of such a file for later tasks.",
    template=True,
)

#: Keys of every task's spec, whatever its kind. A kind may declare more in `spec_fields`.
COMMON_SPEC_FIELDS: tuple[Field, ...] = (
    Field(
        "timeout",
        "number",
        "Time limit of one attempt, in seconds.",
        exclusive_min=0,
        maximum=LONGEST_S,
    ),
    Field(
        "delivery",
        "string",
        "`at_least_once` (default) or `at_most_once`, which never repeats an attempt that may have started.",
        choices=("at_least_once", "at_most_once"),
    ),
    Field(
        "result",
        "object",
        "Where and how long the task's payload is stored.",
        fields=(
            Field(
                "store",
                "string",
                "`auto` (default) keeps a payload up to the inline limit in the log and stores a larger one in the result store; `always` uses the result store.",
                choices=("auto", "always"),
            ),
            Field(
                "scope",
                "string",
                "How long a stored payload is kept: step, execution (default), workflow or permanent.",
                choices=("step", "execution", "workflow", "permanent"),
            ),
            Field(
                "ttl",
                "number",
                "Seconds after which a stored payload may be removed.",
                exclusive_min=0,
                maximum=LONGEST_S,
            ),
            Field(
                "select",
                "list",
                "Parts of the payload that are kept in the log under a name, whatever the size of the payload.",
                items=Field(
                    "part",
                    "object",
                    fields=(
                        Field("path", "string", "Path in the payload, such as `rows[0].id`.", required=True),
                        Field("as", "name", "Name of the part in templates: {{ task.name }}.", required=True),
                    ),
                ),
            ),
            Field(
                "inline_max_bytes",
                "integer",
                "Inline limit of this task, in bytes. It cannot exceed the limit of the run (`results.inline_max_bytes`).",
                minimum=0,
            ),
        ),
    ),
    RETRY,
)


class Variant(Struct, frozen=True, omit_defaults=True):
    """One of the operations of a kind, with its required and allowed keys."""

    #: its value in the field `KindSpec.choice`
    name: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


class KindSpec(Struct, frozen=True, omit_defaults=True):
    """One tool kind."""

    name: str
    summary: str
    #: Config keys of a task of this kind, besides `name kind spec desc auth`.
    fields: tuple[Field, ...] = ()
    #: Keys of `task.spec` that this kind supports besides COMMON_SPEC_FIELDS. Only declared keys reach a task.
    spec_fields: tuple[Field, ...] = ()
    #: Lowest layer of `task.spec`.
    defaults: dict[str, Any] = {}
    #: Whether running it can change other systems: its end must be durable before the next effectful task starts.
    effectful: bool = True
    #: Whether it never waits: it has no time limit, and its start is not reported before its end.
    at_once: bool = False
    #: 'worker' (a Tool class runs it), 'pipeline' (the worker itself, without a tool) or 'engine' (the server handles
    #: it, and no slot is occupied).
    runs_on: str = "worker"
    #: Key of the payload inside the result; '' for the result itself.
    data_at: str = ""
    #: Name of the outcome's helper and its fields; always defined for the kind, its fields may be null.
    helper: str = ""
    helper_fields: tuple[str, ...] = ()
    #: Config keys whose text is code or another language, not a template.
    verbatim: tuple[str, ...] = ()
    #: Config keys whose text is SQL: their templates become bound parameters (with `params`, if the task has them), and
    #: the tool gets [{sql, params}, …], one entry per statement.
    sql: tuple[str, ...] = ()
    #: Config key that `file:` of a task sets to the text of a file beside the playbook; '' if the kind accepts no file.
    from_file: str = ""
    #: Whether `module:` and `function:` name code in such files; the task contains the imported files as `modules`.
    takes_modules: bool = False
    #: The dialect of those keys: sqlite | postgres | duckdb.
    dialect: str = ""
    #: Config keys that may refer to large stored data: a template that is exactly such a value gives the tool its
    #: `model.refs.ResultRef`, which it reads through `TaskContext.results`, instead of the data itself.
    by_ref: tuple[str, ...] = ()
    #: Whether its tasks can open files of this machine: `{{ task.files.name }}` is then a path to a copy, in
    #: `TaskContext.files`.
    opens_files: bool = True
    #: Keychain kinds that a task's `auth` may name; () for a tool that uses no credential, None if it is not declared.
    auth: tuple[str, ...] | None = None
    #: Names that the tool reads as a whole, besides those in its templates, e.g. ('workload', 'ctx').
    needs: tuple[str, ...] = ()
    #: Groups of config keys of which exactly one must be set, e.g. (('code', 'script'),).
    one_of: tuple[tuple[str, ...], ...] = ()
    #: The config key that selects the operation, and the keys that belong to each of its values; keys that no variant
    #: names belong to all.
    choice: str = ""
    variants: tuple[Variant, ...] = ()

    def empty_helper(self) -> dict[str, dict[str, Any]]:
        return {self.helper: dict.fromkeys(self.helper_fields)} if self.helper else {}


# The setting `tasks.kinds` disables kinds of tasks, or restricts them to tenants and roles:
#
# shell: none; python: acme, ops; duckdb: role:admin; http: acme, role:engineer
#
# A kind that is not listed has no restriction. `none` disables a kind. Tenant names restrict it to these tenants,
# `role:…` to playbooks that a caller with one of these roles submitted (an admin has all roles); both must hold.


_SETTING = "tasks.kinds"
_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_NONE, _ROLE, _ADMIN = "none", "role:", "admin"


class KindRule(Struct, frozen=True):
    """The tenants and roles that may use one kind; empty for everyone."""

    tenants: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    is_off: bool = False


class KindRules(Struct, frozen=True):
    """The rules by kind."""

    rules: dict[str, KindRule] = {}

    def refusal(self, kind: str, tenant: str, roles: Collection[str] | None = None) -> str:
        """Return why a task of this kind must not run for a tenant, or '' if it may.

        With `roles`, also check that a caller with these roles may submit it.
        """
        rule = self.rules.get(kind)
        if rule is None:
            return ""
        if rule.is_off:
            return f"kind {kind} is switched off (setting {_SETTING})"
        if rule.tenants and tenant not in rule.tenants:
            return f"kind {kind} is not for tenant {tenant} (setting {_SETTING})"
        if rule.roles and roles is not None and _ADMIN not in roles and rule.roles.isdisjoint(roles):
            wanted = " or ".join(sorted(rule.roles | {_ADMIN}))
            return f"submitting a playbook with tasks of kind {kind} requires the role {wanted} (setting {_SETTING})"
        return ""


def kind_rules(settings: Settings, installed: Collection[str] | None = None) -> KindRules:
    """Parse the rules of the setting. Raises SettingsError for an invalid rule or a kind that is not `known`."""
    rules: dict[str, KindRule] = {}
    for part in settings.text(_SETTING).split(";"):
        if not part.strip():
            continue
        kind, colon, text = (piece.strip() for piece in part.partition(":"))
        words = [word.strip() for word in text.split(",")]
        if not colon or not all(_NAME.fullmatch(word.removeprefix(_ROLE)) for word in (kind, *words)):
            raise SettingsError(
                f"{_SETTING}: {part.strip()!r} is not a rule; write e.g. `shell: none; python: acme, role:engineer`"
            )
        if installed is not None and kind not in installed:
            raise SettingsError(f"{_SETTING}: there is no kind {kind!r}; installed are {', '.join(sorted(installed))}")
        roles = frozenset(word.removeprefix(_ROLE) for word in words if word.startswith(_ROLE))
        tenants = frozenset(word for word in words if not word.startswith(_ROLE))
        if _NONE in tenants and len(words) > 1:
            raise SettingsError(f"{_SETTING}: {part.strip()!r} has both none and other values; remove one of them")
        rules[kind] = KindRule(is_off=True) if _NONE in tenants else KindRule(tenants, roles)
    return KindRules(rules)
