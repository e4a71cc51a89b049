"""Texts that are made to cost much: whoever checks a playbook of somebody else gets an answer."""

from __future__ import annotations

import json
import time

import pytest

from arclog.model.config.settings import Settings
from arclog.plan.build import build
from arclog.wiring.kinds import installed_kinds

#: Processor time, far above what linear work takes.
MOST_S = 10.0
LONG = {
    "letters": "a" * 100_000,
    "words": "a-" * 50_000,
    "schemes": "a://b:" * 15_000,
    "users": "a://" + "b" * 100_000,
    "passwords": "a://b:" + "c" * 100_000,
    "keywords": "password = " * 8_000,
    "spaces": "password" + " " * 100_000,
    "braces": "{{" * 20_000,
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_text_is_checked_in_linear_time(name: str) -> None:
    tool = {"kind": "http", "url": LONG[name], "headers": {"Authorization": LONG[name]}}
    text = json.dumps({"metadata": {"name": "a"}, "workflow": [{"step": "start", "tool": tool}]})
    began = time.process_time()
    build(text, "a.yaml", installed_kinds(), Settings(), thorough=True)
    assert time.process_time() - began < MOST_S
