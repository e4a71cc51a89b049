"""The page that lists which backends are held to which contract, drawn from the test classes themselves."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

TESTS = Path(__file__).parents[1] / "conformance"
_SUITES = "arclog.testing.conformance."


def suites() -> dict[str, list[tuple[str, str, int]]]:
    """By port: (backend or way, the first line of what its test says, how many rules it is held to)."""
    by_port: dict[str, list[tuple[str, str, int]]] = {}
    for path in sorted(TESTS.glob("test_*.py")):
        module = importlib.import_module(f"tests.conformance.{path.stem}")
        for name, case in inspect.getmembers(module, inspect.isclass):
            contracts = {base.__module__ for base in case.__mro__ if base.__module__.startswith(_SUITES)}
            if case.__module__ != module.__name__ or not name.startswith("Test") or not contracts:
                continue
            port = min(contracts).removeprefix(_SUITES).partition(".")[0]
            rules = sum(attribute.startswith("test_") for attribute in dir(case))
            about, _, _ = (vars(case).get("__doc__") or module.__doc__ or "").strip().partition("\n")
            by_port.setdefault(port, []).append((name.removeprefix("Test"), about, rules))
    return by_port


def conformance_page() -> str:
    lines = [
        "<!-- Drawn from tests/conformance by tests/docs; change that, then run `./x pytest tests/docs --redraw`. -->\n\n",
        "# Conformance\n\n",
        "Each port has one suite of rules (`arclog.testing.conformance`), and everything that implements it passes that suite ",
        "unchanged, against the real server where there is one. `./x pytest tests/conformance` runs all of it and ends with the ",
        "counts; a backend of your own is held to the same rules by a subclass with one fixture.\n",
    ]
    for port, rows in sorted(suites().items()):
        lines.append(f"\n## `ports.{port}`\n\n| backend | what is tested | rules |\n| --- | --- | ---: |\n")
        lines += [f"| {name} | {about.replace('|', chr(92) + '|')} | {rules} |\n" for name, about, rules in rows]
    return "".join(lines)
