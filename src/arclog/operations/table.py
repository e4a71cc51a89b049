"""Every operation, in the order of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from arclog.operations import (
    access,
    catalog,
    events,
    executions,
    history,
    pools,
    results,
    runs,
    schedules,
    server,
    signals,
    workers,
)
from arclog.operations.operation import Operation

_MODULES = (
    server,
    executions,
    events,
    signals,
    history,
    catalog,
    results,
    workers,
    access,
    runs,
    schedules,
    pools,
)


def _rows(module: ModuleType) -> Iterator[Operation[Any]]:
    for value in vars(module).values():
        if isinstance(value, Operation):
            yield value


#: Every operation of the API.
OPERATIONS: tuple[Operation[Any], ...] = tuple(row for module in _MODULES for row in _rows(module))
