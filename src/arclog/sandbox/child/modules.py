"""Modules that a task brings along: they are imported from memory, and forgotten when the task has ended."""

# Stand-alone and light, as the runner.

from __future__ import annotations

import importlib.util
import linecache
import sys
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any


class Brought:
    """Finds and loads the modules of one task."""

    def __init__(self, modules: dict[str, dict[str, str]]) -> None:
        self._modules = modules
        self.paths = frozenset(module["path"] for module in modules.values())
        #: those whose code is running now, the outermost first
        self._loading: list[str] = []

    def enter(self) -> None:
        """Let the task's code import them."""
        if self._modules:
            sys.meta_path.insert(0, self)

    def leave(self) -> None:
        """Forget them."""
        if not self._modules:
            return
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        for name in self._modules:
            sys.modules.pop(name, None)
        for path in self.paths:
            linecache.cache.pop(path, None)

    # -- what the import system asks for ------------------------------------------------------------------------------

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        if name not in self._modules and not self._is_folder(name):
            return None
        module = self._modules.get(name)
        is_package = module is None or module["path"].endswith("/__init__.py")
        origin = None if module is None else module["path"]
        loader: Any = self
        return importlib.util.spec_from_loader(name, loader, origin=origin, is_package=is_package)

    def create_module(self, _spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        found = self._modules.get(module.__name__)
        if found is None:
            return  # a folder without __init__.py
        path, source = found["path"], found["source"]
        linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
        program: CodeType = compile(source, path, "exec", dont_inherit=True)
        self._loading.append(module.__name__)
        try:
            exec(program, module.__dict__)
        except ImportError as error:
            if error.name in self._loading and " (unknown location)" in error.msg:
                way = [*self._loading[self._loading.index(error.name) :], error.name]
                error.msg = (
                    f"{error.msg.replace(' (unknown location)', '')}, which is still being imported ({' → '.join(way)}); "
                    "import it inside the function that needs it"
                )
            raise
        finally:
            self._loading.pop()

    def is_package(self, name: str) -> bool:
        return name not in self._modules or self._modules[name]["path"].endswith("/__init__.py")

    def _is_folder(self, name: str) -> bool:
        return any(known.startswith(f"{name}.") for known in self._modules)
