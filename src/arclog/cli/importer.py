"""Finds and loads modules of arclog and of Python's library with fewer system calls.

A start imports about 400 modules. Python looks for a module under five names, builds the path of its bytecode twice and reads
files through a buffered object; this takes as long as it takes to run the module. Modules of these two packages are a file
`name.py` or a folder `name`, and their bytecode lies in `__pycache__`. Every other module, and a module whose bytecode is missing
or stale, is left to Python's own importer.
"""

# pathlib is not imported yet.
# ruff: noqa: PTH116, PTH120
from __future__ import annotations

import _frozen_importlib_external as python  # what importlib.machinery has, which would be another module to import
import os
import sys
from _frozen_importlib import ModuleSpec
from marshal import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

_LIBRARY = os.path.dirname(os.__file__)
_TAIL = f".{sys.implementation.cache_tag}.pyc"
#: how the bytecode of a file starts that is valid as long as the file's time and size are the same
_HEAD = python.MAGIC_NUMBER + b"\0\0\0\0"
#: The bytecode of larger modules is read by Python's own loader: beyond this size, memory comes from the kernel.
_MOST_BYTES = 120_000


def install() -> None:
    """Use this importer in this process, unless Python was started in a way that places modules elsewhere."""
    if sys.flags.optimize or sys.pycache_prefix is not None or "PYTHONPATH" in os.environ:
        return
    if python.PathFinder in sys.meta_path and _Finder not in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(python.PathFinder), _Finder)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, last = name.rpartition(".")
        if path is None:
            if name not in sys.stdlib_module_names:
                return None
            folder = _LIBRARY
        elif len(path) == 1 and (name.startswith("arclog.") or package in sys.stdlib_module_names):
            folder = path[0]
        else:
            return None
        within, stem = folder, last
        file = f"{folder}/{last}.py"
        try:
            facts = os.stat(file)
        except OSError:
            within, stem = f"{folder}/{last}", "__init__"
            file = f"{within}/__init__.py"
            try:
                facts = os.stat(file)
            except OSError:
                return None
        cached = f"{within}/__pycache__/{stem}{_TAIL}"
        spec = ModuleSpec(name, _Loader(name, file, cached, facts), origin=file)
        spec.has_location = True
        spec.cached = cached
        if within is not folder:
            spec.submodule_search_locations = [within]
        return spec


class _Loader(python.SourceFileLoader):
    def __init__(self, name: str, path: str, cached: str, facts: os.stat_result) -> None:
        self.name = name
        self.path = path
        self._cached = cached
        self._facts = facts

    def get_code(self, name: str) -> CodeType | None:
        try:
            file = os.open(self._cached, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return super().get_code(name)
        try:
            body = os.read(file, _MOST_BYTES)
        finally:
            os.close(file)
        if len(body) < _MOST_BYTES and body.startswith(_HEAD) and body[8:16] == _age(self._facts):
            code: CodeType = loads(memoryview(body)[16:])  # noqa: S302 - bytecode, as Python loads it
            if code.co_filename == self.path:
                return code
        return super().get_code(name)


def _age(facts: os.stat_result) -> bytes:
    """Return the time and size of a source file as its bytecode has them."""
    return (int(facts.st_mtime) & 0xFFFFFFFF | (facts.st_size & 0xFFFFFFFF) << 32).to_bytes(8, "little")
