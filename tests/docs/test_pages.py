"""Pages that people write: their links lead somewhere, and nothing of the language is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from arclog.playbook.engine_kinds import ENGINE_KINDS
from arclog.wiring.kinds import installed_kinds

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"))
)
KINDS = {**ENGINE_KINDS, **installed_kinds()}


def _prose(text: str) -> str:
    return re.sub(r"(?ms)^ *```.*?^ *```", "", text)


def _anchors(path: Path) -> set[str]:
    """Headings as GitHub names them."""
    anchors: set[str] = set()
    for heading in re.findall(r"(?m)^#+ (.*)$", _prose(path.read_text(encoding="utf-8"))):
        plain = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        number = 0
        while (name := f"{plain}-{number}" if number else plain) in anchors:
            number += 1
        anchors.add(name)
    return anchors


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (path.parent / name).resolve() if name else path
        assert other.exists(), f"{page}: {target} is not there"
        if anchor:
            assert anchor in _anchors(other), f"{page}: {target}: no such heading"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_reference_tells_of_every_key_of_a_kind(kind: str) -> None:
    text = (ROOT / "docs/playbook.md").read_text(encoding="utf-8")
    assert f"kind: {kind}" in text
    for field in (*KINDS[kind].fields, *KINDS[kind].spec_fields):
        assert re.search(rf"`[^`\n]*\b{field.name}\b[^`\n]*`|^ *(- )?{field.name}:", text, re.MULTILINE), field.name


def test_decisions_are_numbered_in_order_and_listed_with_their_titles() -> None:
    index = (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")
    numbers: set[str] = set()
    for path in sorted(ROOT.glob("docs/adr/[0-9]*.md")):
        title, _, body = path.read_text(encoding="utf-8").partition("\n")
        digits, _, words = title.removeprefix("# ").partition(". ")
        assert digits == path.name[:3], f"{path.name} has another number in its title"
        assert digits not in numbers, f"{path.name}: the number is taken"
        numbers.add(digits)
        assert f"- [{digits}]({path.name}) {words}\n" in index
        assert re.findall(r"(?m)^## (.*)$", body) == ["Question", "Decision", "Because", "Costs"], path.name
        assert body.startswith("\nStatus: "), path.name
