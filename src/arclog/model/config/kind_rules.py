"""Which kinds of tasks are switched off, or are for some tenants and roles only: the setting `tasks.kinds`.

    shell: none; python: acme, ops; duckdb: role:admin; http: acme, role:engineer

A kind that is not named is for everybody. `none` switches one off. Names of tenants leave it to these, `role:…` to
playbooks that were brought by a caller with one of these roles (an admin has them all); both together must hold.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError

_SETTING = "tasks.kinds"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_NONE, _ROLE, _ADMIN = "none", "role:", "admin"


class KindRule(Struct, frozen=True):
    """Who may use one kind; empty: everybody, as far as that goes."""

    tenants: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    is_off: bool = False


class KindRules(Struct, frozen=True):
    """The rules by kind."""

    rules: dict[str, KindRule] = {}

    def refusal(self, kind: str, tenant: str, roles: Collection[str] | None = None) -> str:
        """Why a task of this kind must not run for a tenant, or be brought by a caller with these roles; '' when it may."""
        rule = self.rules.get(kind)
        if rule is None:
            return ""
        if rule.is_off:
            return f"kind {kind} is switched off (setting {_SETTING})"
        if rule.tenants and tenant not in rule.tenants:
            return f"kind {kind} is not for tenant {tenant} (setting {_SETTING})"
        if rule.roles and roles is not None and _ADMIN not in roles and rule.roles.isdisjoint(roles):
            wanted = " or ".join(sorted(rule.roles | {_ADMIN}))
            return f"a playbook with tasks of kind {kind} is brought by the role {wanted} (setting {_SETTING})"
        return ""


def kind_rules(settings: Settings, known: Collection[str] | None = None) -> KindRules:
    """The rules of a setting; a SettingsError for what is none, or names a kind that is not `known`."""
    found: dict[str, KindRule] = {}
    for part in settings.text(_SETTING).split(";"):
        if not part.strip():
            continue
        kind, colon, text = (piece.strip() for piece in part.partition(":"))
        words = [word.strip() for word in text.split(",")]
        if not colon or not all(_NAME.fullmatch(word.removeprefix(_ROLE)) for word in (kind, *words)):
            raise SettingsError(
                f"{_SETTING}: {part.strip()!r} is not a rule; write e.g. `shell: none; python: acme, role:engineer`"
            )
        if known is not None and kind not in known:
            raise SettingsError(f"{_SETTING}: there is no kind {kind!r}; installed are {', '.join(sorted(known))}")
        roles = frozenset(word.removeprefix(_ROLE) for word in words if word.startswith(_ROLE))
        tenants = frozenset(word for word in words if not word.startswith(_ROLE))
        if _NONE in tenants and len(words) > 1:
            raise SettingsError(f"{_SETTING}: {part.strip()!r} has both none and other values; remove one of them")
        found[kind] = KindRule(is_off=True) if _NONE in tenants else KindRule(tenants, roles)
    return KindRules(found)
