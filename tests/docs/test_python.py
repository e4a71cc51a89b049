"""The examples of docs/python.md do what the page says, and use public names alone."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import arclog
import arclog.errors
import arclog.testing

PAGE = Path(__file__).parents[2] / "docs/python.md"
_BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def examples() -> list[tuple[str, str]]:
    """Each piece of code with the output that the page shows behind it."""
    blocks = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks] == ["python", "text"] * (len(blocks) // 2)
    return [(code, output) for (_, code), (_, output) in zip(blocks[::2], blocks[1::2], strict=True)]


def test_the_examples_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARCLOG_HOME", str(tmp_path / "home"))
    names: dict[str, object] = {"__name__": "example"}
    for code, output in examples():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec", dont_inherit=True), names)
        assert printed.getvalue() == output, code


def test_the_examples_use_public_names_alone() -> None:
    public = {
        "arclog": {*arclog.__all__},
        "arclog.errors": {*arclog.errors.__all__},
        "arclog.testing": {*arclog.testing.__all__},
    }
    for code, _ in examples():
        for module, names in re.findall(r"^from (arclog[\w.]*) import (.+)$", code, re.MULTILINE):
            assert {name.strip() for name in names.split(",")} <= public[module], code
        used = set(re.findall(r"\barclog\.(\w+)", code))
        assert used <= public["arclog"], code
        assert set(re.findall(r"\barclog\.errors\.(\w+)", code)) <= public["arclog.errors"], code


def test_the_page_names_every_public_name() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in set(arclog.__all__) - {"AsyncRun", "Run"}:
        assert re.search(rf"\b{name}\b", text), name
