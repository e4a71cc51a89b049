"""The importer of the program `arclog`: it loads the same code as Python's own, and leaves everything unusual to it."""

import importlib.util
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import arclog
from arclog.cli import importer


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder that the importer takes for a package of arclog."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = tmp_path / "package"
    folder.mkdir()
    return folder


def load(folder: Path, name: str = "module"):
    spec = importer._Finder.find_spec(f"arclog.{name}", [str(folder)])
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cached(folder: Path, name: str = "module") -> Path:
    return Path(importlib.util.cache_from_source(str(folder / f"{name}.py")))


@pytest.mark.parametrize("name", ["arclog.cli.exits", "arclog.cli", "asyncio.events", "textwrap", "asyncio"])
def test_a_module_gets_the_same_attributes_as_from_python(name):
    path = None
    if "." in name:
        path = list(importlib.import_module(name.rpartition(".")[0]).__path__)
    ours, theirs = importer._Finder.find_spec(name, path), importlib.util.find_spec(name)
    assert ours is not None
    assert theirs is not None
    assert (ours.name, ours.origin, ours.cached, ours.parent, ours.has_location) == (
        *(theirs.name, theirs.origin, theirs.cached, theirs.parent, theirs.has_location),
    )
    assert ours.submodule_search_locations == theirs.submodule_search_locations
    assert isinstance(ours.loader, SourceFileLoader)
    assert ours.loader.get_source(name) == theirs.loader.get_source(name)
    assert ours.loader.get_code(name) == theirs.loader.get_code(name)
    assert ours.loader.get_filename(name) == theirs.loader.get_filename(name)


def test_bytecode_is_written_and_used(package):
    (package / "module.py").write_text("value = 1\n")
    assert load(package).value == 1
    assert cached(package).exists()
    assert load(package).value == 1


def test_a_changed_file_is_compiled_again(package):
    file = package / "module.py"
    file.write_text("value = 1\n")
    load(package)
    file.write_text("value = 10\n")
    assert load(package).value == 10
    file.write_text("value = 11\n")  # of the same size
    os.utime(file, (1, 1))
    assert load(package).value == 11


@pytest.mark.parametrize("body", [b"", b"\0", b"no bytecode, but long enough for a header", None])
def test_damaged_bytecode_is_replaced(package, body):
    (package / "module.py").write_text("value = 1\n")
    load(package)
    whole = cached(package).read_bytes()
    cached(package).write_bytes(whole[:12] if body is None else body)
    assert load(package).value == 1
    assert cached(package).read_bytes() == whole


def test_bytecode_of_a_folder_that_was_moved_names_the_new_file(package, tmp_path):
    (package / "module.py").write_text("def function(): ...\n")
    load(package)
    moved = package.rename(tmp_path / "moved")
    assert load(moved).function.__code__.co_filename == str(moved / "module.py")


def test_a_large_module_is_loaded(package):
    (package / "module.py").write_text("\n".join(f"value_{n} = 'text {n}'" for n in range(8_000)))
    load(package)
    assert cached(package).stat().st_size > importer._MOST_BYTES
    assert load(package).value_7999 == "text 7999"


def test_other_modules_are_left_to_python(package):
    (package / "module.py").write_text("value = 1\n")
    assert importer._Finder.find_spec("other.module", [str(package)]) is None
    assert importer._Finder.find_spec("arclog.missing", [str(package)]) is None
    assert importer._Finder.find_spec("arclog.module", [str(package), "/elsewhere"]) is None
    assert importer._Finder.find_spec("arclog") is None
    assert importer._Finder.find_spec("_socket") is None


def test_it_is_installed_once_before_the_search_of_the_path(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    importer.install()
    importer.install()
    assert sys.meta_path.count(importer._Finder) == 1
    names = [getattr(finder, "__name__", "") for finder in sys.meta_path]
    assert names.index("_Finder") + 1 == names.index("PathFinder")


def test_with_a_python_path_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(arclog.__file__).parents[1]))
    importer.install()
    assert importer._Finder not in sys.meta_path
