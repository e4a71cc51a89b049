"""The setting `tasks.kinds`."""

from __future__ import annotations

import pytest

from arclog.model.config.kinds import KindRules, kind_rules
from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError

KNOWN = ("shell", "python", "duckdb", "http")
TEXT = "shell: none; python: acme, ops; duckdb: role:admin; http: acme, role:engineer;"


def rules(text: str) -> KindRules:
    return kind_rules(Settings({"tasks.kinds": text}), KNOWN)


@pytest.mark.parametrize(
    ("kind", "tenant", "roles", "words"),
    [
        ("shell", "acme", {"admin"}, "switched off"),
        ("python", "acme", {"viewer"}, ""),
        ("python", "globex", {"admin"}, "not for tenant globex"),
        ("duckdb", "acme", {"engineer"}, "the role admin"),
        ("duckdb", "acme", {"admin"}, ""),
        ("duckdb", "acme", None, ""),
        ("http", "acme", {"engineer"}, ""),
        ("http", "acme", {"admin"}, ""),
        ("http", "acme", {"operator"}, "the role admin or engineer"),
        ("http", "globex", {"engineer"}, "not for tenant globex"),
        ("noop", "globex", set(), ""),
    ],
)
def test_who_may(kind: str, tenant: str, roles: set[str] | None, words: str) -> None:
    refusal = rules(TEXT).refusal(kind, tenant, roles)
    assert (words in refusal) if words else refusal == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("shell", "is not a rule"),
        ("shell:", "is not a rule"),
        ("shell: a b", "is not a rule"),
        ("shell: role:", "is not a rule"),
        ("shell: none, acme", "both none and other values"),
        ("shel: none", "no kind 'shel'"),
    ],
)
def test_what_is_no_rule(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        rules(text)


def test_nothing_is_everything() -> None:
    assert rules("") == KindRules()
