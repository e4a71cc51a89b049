"""Imports msgspec, asyncio, pathlib and tempfile without modules that a short program does not use.

A run of one task is mostly imports. These packages import ssl, inspect, shutil and ipaddress for functions that few
programs call. Inside them, such a module is imported when something of it is used; other importers get the module itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


def import_packages() -> None:
    """Import the packages that every command needs that opens a home or reads a playbook."""
    with _without("typing_extensions"):  # msgspec prefers it to typing, which has everything that msgspec needs
        import msgspec  # noqa: F401 - later imports find it loaded
    with _on_demand("ssl", "asyncio.sslproto", "inspect"):
        import asyncio  # noqa: F401 - likewise
    with _on_demand("ipaddress", "shutil"):  # of urllib.parse, which pathlib needs, and of tempfile
        import pathlib  # noqa: F401 - likewise
        import tempfile  # noqa: F401 - likewise


class _OnDemand(ModuleType):
    """In the place of a module inside the modules that imported it: it imports the module when an attribute is read."""

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
