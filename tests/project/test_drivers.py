"""Connections are opened, and pauses computed, in `drivers` and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import arclog

SOURCE = Path(arclog.__file__).parent
#: Calls that open a connection to a server.
OPENING = frozenset(
    {
        "psycopg.connect", "psycopg.AsyncConnection.connect", "AsyncConnection.connect", "Connection.connect",
        "nats.connect", "Client.connect", "urlopen", "request.urlopen", "urllib.request.urlopen",
    }
)  # fmt: skip


def modules(*words: str) -> Iterator[tuple[str, ast.Module]]:
    """Those in whose text one of the words is: to parse all of them takes seconds."""
    for path in sorted(SOURCE.rglob("*.py")):
        place, text = path.relative_to(SOURCE), path.read_text()
        if place.parts[0] not in ("drivers", "testing") and any(word in text for word in words):
            yield str(place), ast.parse(text)


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def is_doubling(node: ast.AST) -> bool:
    """`min(pause * 2, longest)`, and the like."""
    return (
        isinstance(node, ast.Call)
        and dotted(node.func) == "min"
        and any(
            isinstance(part, ast.BinOp)
            and isinstance(part.op, ast.Mult | ast.Pow)
            and any("pause" in dotted(name) for name in ast.walk(part) if isinstance(name, ast.Name | ast.Attribute))
            and any(isinstance(number, ast.Constant) and number.value == 2 for number in ast.walk(part))
            for part in node.args
        )
    )


def test_only_drivers_open_connections() -> None:
    opened = [
        f"{place}:{node.lineno}: {dotted(node.func)}"
        for place, tree in modules(*{name.rpartition(".")[2] for name in OPENING})
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and dotted(node.func) in OPENING
    ]
    assert opened == []


def test_only_drivers_compute_pauses() -> None:
    doubled = [
        f"{place}:{node.lineno}"  # type: ignore[attr-defined]  # a call, which has one
        for place, tree in modules("pause")
        for node in ast.walk(tree)
        if is_doubling(node)
    ]
    assert doubled == []


@pytest.mark.parametrize("text", ["min(pause * 2, longest)", "min(2 * self._pause, x)", "min(first_pause * 2 ** n, x)"])
def test_a_pause_that_doubles_is_recognized(text: str) -> None:
    assert is_doubling(ast.parse(text, mode="eval").body)
