"""Optional dependencies: the table is the package's own, and each missing module is answered with its extra."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from arclog.model.config.extras import ALL, EXTRAS, missing, required
from arclog.model.errors import MissingExtra, SettingsError

ROOT = Path(__file__).parents[4]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECLARED: dict[str, list[str]] = PROJECT["optional-dependencies"]
#: module → the requirement that brings it as a dependency of its own
WITHIN = {
    "markupsafe": "jinja2",
    "nkeys": "nats-py",
    "h2": "httpx2",
    "opentelemetry": "opentelemetry-sdk",
}


def name_of(requirement: str) -> str:
    result = re.match(r"[\w.-]+", requirement)
    assert result
    return re.sub(r"[-_.]+", "-", result[0]).lower()


def imported() -> set[str]:
    """Every package outside that arclog's modules import."""
    result = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                result |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                result.add(node.module.partition(".")[0])
    return result - set(sys.stdlib_module_names) - {"arclog"}


def test_every_module_of_the_table_comes_from_its_extra():
    distributions = packages_distributions()
    assert DECLARED.keys() == {*EXTRAS, ALL}
    for extra, modules in EXTRAS.items():
        declared = {name_of(requirement) for requirement in DECLARED[extra]}
        for module in modules:
            names = {WITHIN.get(module, name_of(name)) for name in distributions[module]}
            assert names & declared, f"{module} is not of the extra {extra}"


def test_all_holds_every_other_extra():
    (requirement,) = DECLARED[ALL]
    assert requirement == f"arclog[{','.join(EXTRAS)}]"


def test_every_module_that_is_imported_is_a_dependency_or_in_the_table():
    always = {name_of(requirement) for requirement in PROJECT["dependencies"]}
    distributions = packages_distributions()
    optional = {module for modules in EXTRAS.values() for module in modules}
    unknown = {
        module
        for module in imported() - optional
        if not {WITHIN.get(module, name_of(name)) for name in distributions.get(module, [module])} & always
    }
    # keyring is not an extra: its user chooses a backend, too. arclog.testing is for those who have the others.
    assert unknown <= {"keyring", "pytest", "hypothesis"}


def test_a_missing_module_names_its_extra():
    with pytest.raises(MissingExtra) as caught, required("server", "making a key"):
        raise ModuleNotFoundError("No module named 'argon2.low_level'", name="argon2.low_level")
    assert str(caught.value) == (
        "making a key needs the package argon2, which is not installed: pip install 'arclog[server]'"
    )
    assert isinstance(caught.value, SettingsError)


def test_a_module_of_another_extra_is_named_with_its_own():
    with pytest.raises(MissingExtra, match=r"arclog\[postgres\]"), required("server", "x"):
        raise ModuleNotFoundError(name="psycopg")


def test_a_package_that_is_there_in_part_names_the_extra_that_was_asked_for():
    with pytest.raises(MissingExtra, match=r"no pq wrapper available\): pip install 'arclog\[postgres\]'"):  # noqa: SIM117
        with required("postgres", "ARCLOG_STORE_URL"):
            raise ImportError("no pq wrapper available.\nAttempts made: …")


@pytest.mark.parametrize("name", ["arclog.nothing", "yaml"])
def test_a_module_that_no_extra_brings_is_an_error_of_ours(name):
    with pytest.raises(ModuleNotFoundError), required("postgres", "x"):
        raise ModuleNotFoundError(name=name)
    assert missing(ImportError("x"), "this command") is None
