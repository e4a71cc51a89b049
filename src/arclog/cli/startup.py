"""Imports asyncio, msgspec, yaml and others without the parts that a short program does not use.

A run of one task is mostly imports. These packages import ssl, inspect and shutil for functions that few programs call, and
compile regular expressions for such functions. Inside them, such a module is imported, and such an expression compiled, when
something of it is used; other importers get the module itself.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from arclog.model.data.lazy import PatternOnDemand, pattern

#: functions of `re` that take a compiled expression
_FUNCTIONS = frozenset({"match", "fullmatch", "search", "split", "findall", "finditer", "sub", "subn"})


#: module → functions that other modules take from it when they are imported, and values that they read then
_CALLED_LATER = {"urllib.parse": ("quote_from_bytes",)}
_VALUES: dict[str, dict[str, Any]] = {
    "subprocess": {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3},
    "platform": {"system": lambda: os.uname().sysname},
}


def import_packages() -> None:
    """Import the packages that every command needs that opens a home or reads a playbook."""
    with _patterns_on_demand():
        # msgspec prefers typing_extensions to typing; uuid, which it needs, asks platform for the operating system
        with _without("typing_extensions"), _on_demand("msgspec.inspect", "platform"):
            import msgspec  # noqa: F401 - later imports find it loaded
        with _on_demand(
            "ssl", "asyncio.sslproto", "inspect", "tokenize", "subprocess"
        ):  # tokenize is used by linecache
            import asyncio  # noqa: F401 - likewise
        with _on_demand("urllib.parse", "shutil"):  # of pathlib and of tempfile
            import pathlib  # noqa: F401 - likewise
            import tempfile  # noqa: F401 - likewise
        with _untranslated():
            import argparse  # noqa: F401 - likewise
        import yaml  # noqa: F401 - likewise


@contextmanager
def _untranslated() -> Iterator[None]:
    """Modules imported meanwhile do not load gettext. arclog has no translations, so gettext would search the disk for
    catalogs that do not exist, with each message.
    """
    if "gettext" in sys.modules:
        yield
        return
    module: Any = ModuleType("gettext")
    module.gettext = lambda message: message
    module.ngettext = lambda singular, plural, count: singular if count == 1 else plural
    sys.modules["gettext"] = module
    try:
        yield
    finally:
        del sys.modules["gettext"]


class _OnDemand(ModuleType):
    """In the place of a module inside the modules that imported it: it imports the module when an attribute is read."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        vars(self).update(_VALUES.get(name, {}))
        for function in _CALLED_LATER.get(name, ()):
            setattr(self, function, partial(self._call, function))

    def _call(self, function: str, *args: Any, **options: Any) -> Any:
        return getattr(import_module(self.__name__), function)(*args, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by the import system
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:  # it is used at import already, as some releases of Python do
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def _on_demand(*names: str) -> Iterator[None]:
    """Modules imported meanwhile get these modules on demand; modules imported later get the modules themselves."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update({name: _OnDemand(name) for name in absent})
    try:
        yield
    finally:
        for name in absent:
            if isinstance(sys.modules.get(name), _OnDemand):
                del sys.modules[name]


class _PatternsOnDemand(ModuleType):
    """In the place of `re` inside the modules that imported it: expressions are compiled on first use."""

    compile = staticmethod(pattern)

    def __getattr__(self, name: str) -> Any:
        value = getattr(re, name)
        return _accepting_patterns(value) if name in _FUNCTIONS else value


def _accepting_patterns(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(expression: Any, *rest: Any, **options: Any) -> Any:
        compiled = expression.compiled() if isinstance(expression, PatternOnDemand) else expression
        return function(compiled, *rest, **options)

    return call


@contextmanager
def _patterns_on_demand() -> Iterator[None]:
    """Modules imported meanwhile compile their expressions on first use; modules imported later get `re` itself."""
    sys.modules["re"] = _PatternsOnDemand("re")
    try:
        yield
    finally:
        sys.modules["re"] = re


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Make the import of a module fail meanwhile."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # makes the import fail
    try:
        yield
    finally:
        del sys.modules[name]
