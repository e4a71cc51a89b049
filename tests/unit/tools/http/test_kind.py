"""The kind as data: what the docs say of it, and what the language makes of its time limits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from arclog.drivers.http.client import target_of
from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.plan.build import build
from arclog.tools.http.kind import KIND
from arclog.tools.noop import KIND as NOOP

KINDS: dict[str, KindSpec] = {"http": KIND.spec, "noop": NOOP.spec}
ROOT = Path(__file__).parents[4]


def test_the_docs_name_every_key() -> None:
    section = (ROOT / "docs/playbook.md").read_text(encoding="utf-8").partition("\n## http\n")[2].partition("\n## ")[0]
    rows = set(re.findall(r"^\| `([^`]+)`", section, re.MULTILINE))
    assert rows >= {field.name for field in KIND.spec.fields}


def timeout_of(spec: str, executor: str = "{}") -> tuple[float, object]:
    text = (
        f"metadata: {{name: p}}\nexecutor: {{spec: {executor}}}\nworkflow:\n"
        f"  - {{step: start, tool: {{name: t, kind: http, url: 'http://x/', spec: {spec}}}}}\n"
    )
    made = build(text, "p.yaml", KINDS, Settings())
    assert made.plan is not None, made.findings
    task = made.plan.steps[0].tasks[0]
    return task.timeout_s, task.spec.get("timeout")


@pytest.mark.parametrize(
    ("spec", "executor", "total", "kept"),
    [
        ("{}", "{}", 60.0, 60),
        ("{timeout: 5}", "{}", 5.0, 5),
        ("{timeout: {connect: 5, read: 15}}", "{}", 60.0, {"connect": 5, "read": 15}),
        ("{timeout: {total: 7.5}}", "{}", 7.5, {"total": 7.5}),
        ("{timeout: {read: 1}}", "{timeout: {connect: 2, total: 9}}", 9.0, {"connect": 2, "total": 9, "read": 1}),
        ("{timeout: {read: 1}}", "{policy: {defaults: {timeouts: {task_s: 8}}}}", 8.0, {"read": 1}),
    ],
)
def test_time_limits(spec: str, executor: str, total: float, kept: object) -> None:
    assert timeout_of(spec, executor) == (total, kept)


def test_a_refused_address_is_refused_every_time() -> None:
    """Addresses are kept once parsed; errors are not."""
    for _ in range(2):
        with pytest.raises(Exception, match="neither http"):
            target_of("ftp://x/")
