"""Keychain entries and their use, as `check` sees them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from arclog.model.config.kinds import KindSpec
from arclog.model.data.shapes import Field
from arclog.plan.build import build
from arclog.playbook.declarations import KINDS as KEYCHAIN_KINDS
from arclog.playbook.declarations import SOURCE
from arclog.playbook.json_schema import json_schema
from arclog.wiring.kinds import installed_kinds
from tests.unit.plan.kinds import KINDS

MORE = {
    **KINDS,
    "noop": KindSpec("noop", "Does nothing.", fields=(Field("data", "any", template=True),), auth=()),
    "http": KindSpec("http", "Calls a URL.", fields=(Field("url", "string", template=True),), auth=("bearer", "basic")),
}


def findings_of(entries: str, tool: str = "{kind: noop}") -> list[tuple[str, str]]:
    text = f"metadata: {{name: p}}\nkeychain: {entries}\nworkflow: [{{step: one, tool: {tool}}}]\n"
    return [(finding.code, finding.severity) for finding in build(text, "p.yaml", MORE).findings]


@pytest.mark.parametrize(
    "entry",
    [
        "{name: a, kind: env}",
        "{name: a, kind: env, var: API_KEY}",
        "{name: a, kind: file, path: /run/x, format: json}",
        "{name: a, kind: secret}",
        "{name: a, kind: secret_manager}",
        "{name: a, kind: bearer, token: {env: T}}",
        "{name: a, kind: basic, username: ada, password: {secret: s, key: pw}}",
        "{name: a, kind: basic, username: {env: U}, password: {file: p}}",
        "{name: a, kind: postgres_credential}",
        "{name: a, kind: postgres_credential, source: {env: DATABASE_URL}}",
        "{name: a, kind: postgres_credential, host: h, port: 5432, user: u, dbname: d, password: {env: P}}",
        "{name: a, kind: oauth2, token_url: 'https://x/t', client_id: c, client_secret: {env: S}, scope: r, x-note: y}",
    ],
)
def test_what_an_entry_may_say(entry):
    assert findings_of(f"[{entry}]") == []


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ("{name: a, kind: vault}", "bad-value"),
        ("{name: a}", "missing-key"),
        ("{kind: env}", "missing-key"),
        ("{name: a, kind: file}", "missing-key"),
        ("{name: a, kind: env, path: x}", "unknown-key"),
        ("{name: a, kind: file, path: x, format: xml}", "bad-value"),
        ("{name: a, kind: basic, username: u, password: hunter2}", "literal-secret"),
        ("{name: a, kind: basic, username: u, password: 1234}", "literal-secret"),
        ("{name: a, kind: bearer, token: '{{ workload.x }}'}", "literal-secret"),
        ("{name: a, kind: secret, value: hunter2}", "literal-secret"),
        ("{name: a, kind: postgres_credential, dsn: 'postgres://u:p@h/d'}", "literal-secret"),
        ("{name: a, kind: bearer, token: {}}", "one-of"),
        ("{name: a, kind: bearer, token: {env: A, file: B}}", "one-of"),
        ("{name: a, kind: postgres_credential, source: {env: A}, host: h}", "conflict"),
        ("{name: a, kind: env}, {name: a, kind: secret}", "duplicate-name"),
        ("{name: workload, kind: env}", "reserved-name"),
    ],
)
def test_what_an_entry_may_not_say(entry, code):
    assert findings_of(f"[{entry}]") == [(code, "error")]


def test_no_message_repeats_a_secret_that_stands_in_the_playbook():
    text = "metadata: {name: p}\nkeychain:\n  - name: a\n    kind: bearer\n    token: hunter2hunter2\nworkflow: [{step: one, tool: {kind: noop}}]"
    (finding,) = build(text, "p.yaml", MORE).findings
    assert "hunter2" not in str(finding)
    assert "{env: VARIABLE}" in finding.hint


@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ("{kind: noop, data: '{{ keychain.token.value }}'}", "unknown-keychain"),
        ("{kind: http, url: x, auth: tokn}", "unknown-keychain"),
        ("{kind: http, url: x, auth: api}", "auth-kind"),
        ("{kind: playbook, path: p, args: {t: '{{ keychain.api.value }}'}}", "keychain-misplaced"),
        ("{kind: wait, signal: '{{ keychain.api.value }}'}", "keychain-misplaced"),
    ],
)
def test_uses_that_cannot_work(tool, code):
    assert findings_of("[{name: api, kind: env}, {name: tok, kind: bearer}]", tool) == [(code, "error")]


@pytest.mark.parametrize(
    "tool",
    [
        "{kind: http, url: x, auth: tok}",
        "{kind: http, url: x, auth: '{{ workload.which }}'}",
        "{kind: postgres, command: x, auth: api}",
        "{kind: noop, data: '{{ keychain.api.value }} {{ keychain[workload.which] }}'}",
    ],
)
def test_uses_that_can(tool):
    assert findings_of("[{name: api, kind: env}, {name: tok, kind: bearer}]", tool) == []


def test_auth_that_nothing_uses_is_a_warning():
    assert findings_of("[{name: api, kind: env}]", "{kind: noop, auth: api}") == [("auth-unused", "warning")]


def test_editors_know_the_fields_of_every_kind():
    items = json_schema(KINDS)["properties"]["keychain"]["items"]
    assert items["properties"]["kind"]["enum"] == list(KEYCHAIN_KINDS)
    oauth = next(row["then"] for row in items["allOf"] if row["if"]["properties"]["kind"]["const"] == "oauth2")
    assert set(oauth["properties"]) >= {"token_url", "client_id", "client_secret", "scope"}


def test_the_reference_names_every_kind_and_key():
    text = (Path(__file__).parents[4] / "docs/playbook.md").read_text(encoding="utf-8")
    rows = text.partition("### keychain[]\n")[2].partition("### workflow[]")[0]
    named = set(re.findall(r"`([a-z_]+)`", rows))
    assert {field.name for fields in (*KEYCHAIN_KINDS.values(), SOURCE) for field in fields} <= named
    section = text.partition("\n## Keychain\n")[2].partition("\n## ")[0]
    kinds = set(re.findall(r"^\| `([a-z0-9_]+)` \| ", section, re.MULTILINE))
    assert kinds == set(KEYCHAIN_KINDS)


def test_every_kind_that_is_installed_says_which_credentials_it_takes():
    for kind in installed_kinds().values():
        if kind.runs_on == "worker":
            assert kind.auth is not None, kind.name
            assert set(kind.auth) <= KEYCHAIN_KINDS.keys(), kind.name


@pytest.mark.parametrize("kind", ["postgres", "transfer"])
def test_a_token_opens_no_database(kind):
    text = (
        "metadata: {name: p}\nkeychain: [{name: tok, kind: bearer, token: {env: T}}]\nworkflow:\n"
        f"  - {{step: one, tool: {{kind: {kind}, command: SELECT 1, auth: tok}}}}\n"
    )
    codes = {finding.code for finding in build(text, "p.yaml", installed_kinds()).findings}
    assert "auth-kind" in codes


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        ("{kind: http, url: 'http://x/{{ keychain.api }}'}", "value"),
        ("{kind: http, url: '{{ keychain.tok }} '}", None),
        ("{kind: http, url: 'Bearer {{ keychain.tok }}'}", "token"),
        ("{kind: http, url: \"Bearer {{ keychain['tok'] }}\"}", "token"),
        ("{kind: http, url: \"{{ 'Bearer ' ~ keychain.tok }}\"}", "token"),
        ("{kind: http, url: 'Bearer {{ keychain.tok.token }}'}", None),
        ("{kind: http, url: 'x {{ keychain.api | tojson }}'}", None),
        ("{kind: noop, data: '{{ keychain.api }}'}", None),
        ("{kind: noop, data: '{{ keychain.api.value }}:{{ keychain.tok.token }}'}", None),
    ],
)
def test_an_entry_as_a_whole_is_no_part_of_a_text(tool, field):
    text = (
        "metadata: {name: p}\nkeychain: [{name: api, kind: env}, {name: tok, kind: bearer}]\n"
        f"workflow: [{{step: one, tool: {tool}}}]\n"
    )
    findings = [finding for finding in build(text, "p.yaml", MORE).findings if finding.code == "keychain-text"]
    assert [finding.severity for finding in findings] == ([] if field is None else ["error"])
    if field is not None:
        assert f".{field} }}}}" in findings[0].hint
