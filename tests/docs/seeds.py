"""Reads docs/seeds.md: a row for each statement of the source documents. Its numbers and counts are drawn anew from it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from msgspec import Struct

PAGE = Path(__file__).parents[2] / "docs" / "seeds.md"
HOLDS, RULED, PLACEHOLDER, OPEN = "holds", "ruled otherwise", "placeholder", "open"
STATUSES = (HOLDS, RULED, PLACEHOLDER)
_DOCUMENT = re.compile(r"## (\d{3}): (.*)")
_COUNTS = re.compile(r"(?ms)(?<=<!-- counts -->\n\n).*?(?=<!-- end of counts -->)")


class Row(Struct, frozen=True):
    line: int
    document: str
    section: str
    number: str
    statement: str
    status: str
    #: why it is ruled otherwise, or what is missing
    reason: str
    #: node ids below tests/
    tests: tuple[str, ...]


def rows_of(text: str) -> list[Row]:
    """Every row of every table below the heading of a document."""
    rows: list[Row] = []
    document = section = ""
    for line, content in enumerate(text.splitlines(), start=1):
        if heading := _DOCUMENT.fullmatch(content):
            document, section = heading[1], ""
        elif content.startswith("### "):
            section = content.removeprefix("### ")
        elif document and content.startswith("| ") and not content.startswith(("| no. |", "| --- |")):
            number, statement, status, tests = re.split(r"(?<!\\)\|", content.strip("|"))
            kind, _, reason = status.strip().partition(": ")
            node_ids = tuple(re.findall(r"`([^`]+)`", tests))
            rows.append(Row(line, document, section, number.strip(), statement.strip(), kind, reason, node_ids))
    return rows


def seeds_page() -> str:
    """The page with its rows numbered in order and its counts made anew."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    last: Counter[str] = Counter()
    for row in rows_of(text):
        last[row.document] += 1
        _, _, rest = lines[row.line - 1].removeprefix("| ").partition(" | ")
        lines[row.line - 1] = f"| {row.document}-{last[row.document]} | {rest}"
    return _COUNTS.sub(f"{_counts(rows_of(text))}\n", "".join(lines))


def _counts(rows: list[Row]) -> str:
    kinds = [*STATUSES, *([OPEN] if any(row.status == OPEN for row in rows) else [])]
    lines = [f"| document | statements | {' | '.join(kinds)} |", f"| --- | ---: |{' ---: |' * len(kinds)}"]
    for document in sorted({row.document for row in rows}):
        own = Counter(row.status for row in rows if row.document == document)
        lines.append(f"| {document} | {own.total()} | {' | '.join(str(own[kind]) for kind in kinds)} |")
    every = Counter(row.status for row in rows)
    lines.append(f"| all | {every.total()} | {' | '.join(str(every[kind]) for kind in kinds)} |")
    return "\n".join(lines) + "\n"
