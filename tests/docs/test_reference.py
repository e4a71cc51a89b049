"""Reference pages say what the code says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arclog.playbook.json_schema import json_schema
from arclog.wiring.kinds import installed_kinds
from tests.docs.reference import PAGES

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS.parent / "examples"


@pytest.mark.parametrize("page", PAGES)
def test_a_reference_page_is_what_the_code_draws(page: str, request: pytest.FixtureRequest) -> None:
    path = DOCS / page
    drawn = PAGES[page]()
    if request.config.getoption("--redraw"):
        path.write_text(drawn, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == drawn, f"docs/{page} is stale: run `./x pytest tests/docs --redraw`"


def test_the_schema_beside_the_examples_is_what_arclog_prints(request: pytest.FixtureRequest) -> None:
    path = EXAMPLES / "playbook.schema.json"
    drawn = json.dumps(json_schema(installed_kinds()), indent=1, ensure_ascii=False) + "\n"
    if request.config.getoption("--redraw"):
        path.write_text(drawn, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == drawn, "run `./x pytest tests/docs --redraw`"


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.name)
def test_an_example_names_the_schema(path: Path) -> None:
    """Editors that know JSON Schema check it by its first line."""
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert (path.parent / first.partition("=")[2]).resolve() == EXAMPLES / "playbook.schema.json"
