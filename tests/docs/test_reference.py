"""Reference pages say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.reference import PAGES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", PAGES)
def test_a_reference_page_is_what_the_code_draws(page: str, request: pytest.FixtureRequest) -> None:
    path = DOCS / page
    drawn = PAGES[page]()
    if request.config.getoption("--redraw"):
        path.write_text(drawn, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == drawn, f"docs/{page} is stale: run `./x pytest tests/docs --redraw`"
