"""The folder and the name of a unit test say which module it tests."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "tests" / "unit"
#: These test what the modules of a package do together.
WHOLE_PACKAGES = {
    "authoring/test_new_keys.py",
    "core/test_random_nets.py",
    "history/test_fork.py",
    "history/test_retry.py",
    "stores/test_shape.py",
    "stores/test_shares.py",
}


@pytest.mark.parametrize("test", sorted(str(path.relative_to(UNIT)) for path in UNIT.rglob("test_*.py")))
def test_a_unit_test_has_the_name_of_its_module(test: str) -> None:
    """`test_MODULE.py` or `test_MODULE_ASPECT.py`, in the folder of the module or package."""
    folder, name = (ROOT / "src" / "arclog" / test).parent, Path(test).stem.removeprefix("test_")
    there = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    fits = any(name == module or name.startswith(f"{module}_") for module in there)
    assert fits or test in WHOLE_PACKAGES, f"src/arclog/{Path(test).parent} has no module of the name {name}"


def test_the_exceptions_are_there() -> None:
    assert all((UNIT / test).exists() for test in WHOLE_PACKAGES)
