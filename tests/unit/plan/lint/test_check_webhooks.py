"""What `check` says of webhooks."""

from __future__ import annotations

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import Finding
from arclog.plan.build import build
from arclog.plan.net import Webhook
from arclog.tools import noop

TEXT = """
metadata: {{name: told}}
keychain: [{{name: key, kind: env}}, {{name: db, kind: postgres_credential}}]
executor: {{spec: {{webhooks: [{hook}]}}}}
workflow: [{{step: start, tool: {{kind: noop}}}}]
"""


def findings(hook: str) -> list[Finding]:
    return list(build(TEXT.format(hook=hook), "f.yaml", {"noop": noop.KIND.spec}, Settings()).findings)


def test_webhooks_are_part_of_the_plan() -> None:
    built = build(
        TEXT.format(hook="{url: https://a.example/x, secret: key, on: [failed]}, {url: 'http://b', secret: key}"),
        "f.yaml",
        {"noop": noop.KIND.spec},
        Settings(),
    )
    assert built.plan is not None
    assert built.plan.webhooks == (
        Webhook("https://a.example/x", "key", ("failed",)),
        Webhook("http://b", "key", ("completed", "failed", "cancelled")),
    )


@pytest.mark.parametrize(
    ("hook", "code"),
    [
        ("{url: ftp://a, secret: key}", "bad-value"),
        ("{url: '{{ workload.url }}', secret: key}", "bad-value"),
        ("{url: 'https://{{ x }}', secret: key}", "bad-value"),
        ("{secret: key}", "missing-key"),
        ("{url: https://a}", "missing-key"),
        ("{url: https://a, secret: kye}", "unknown-keychain"),
        ("{url: https://a, secret: db}", "auth-kind"),
        ("{url: https://a, secret: key, on: [ended]}", "bad-value"),
        ("{url: https://a, secret: key, on: []}", "bad-value"),
        ("{url: https://a, secret: key, no: [failed]}", "unknown-key"),
        ("https://a", "wrong-type"),
    ],
)
def test_what_is_wrong_with_a_webhook_is_said_at_its_place(hook: str, code: str) -> None:
    result = findings(hook)
    assert code in [finding.code for finding in result], result
    assert all(finding.at.line == 4 for finding in result)
