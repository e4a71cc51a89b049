"""What of a stored payload stays in the log: the parts that routing reads, and those that the task's `select` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.json import encode

from arclog.expr import MISSING, path_of_text, path_text
from arclog.model.errors import ResultUnavailable
from arclog.plan.demand import Path, payload_paths, value_at
from arclog.plan.net import TaskPlan
from arclog.worker.data.reading import StoredReader

_MEASURED = (str, list, dict)


class Payload:
    """A payload whose parts can be looked at: in memory, or in the result store."""

    def __init__(self, value: Any, ref: Mapping[str, Any] | None = None, reader: StoredReader | None = None) -> None:
        self._value = value
        self._ref = ref
        self._reader = reader

    async def part(self, path: Path, most: int) -> tuple[Any, int]:
        """What stands at a path (MISSING: nothing), and its size in bytes; above `most` only the size counts."""
        if self._reader is None or self._ref is None:
            value = value_at(self._value, path, MISSING)
        elif not path or not self._reader.can_look_into(self._ref):
            return MISSING, max(int(self._ref["meta"]["bytes"]), most + 1)
        else:
            value = await self._reader.at(self._ref, path)
        return value, len(encode(value)) if isinstance(value, _MEASURED) else 0

    async def measured(self, path: Path, size: int) -> dict[str, int]:
        """How much there is at a path: bytes, and items of a list or map."""
        if self._reader is None or self._ref is None:
            value = value_at(self._value, path, MISSING)
            items = len(value) if isinstance(value, list | dict) else None
        else:
            items = self._ref["meta"].get("rows") if not path else None
        return {"bytes": size} if items is None else {"bytes": size, "items": items}


async def extract(record: dict[str, Any], payload: Payload, plan: TaskPlan, demand: frozenset[Path], most: int) -> None:
    """Put the parts into the record; what is too large for that is named with its size, what is not there with null.

    A part that `select` names and that is too large is an error: the author asked for it.
    """
    selected = {part["as"]: path_of_text(part["path"]) for part in (plan.spec.get("result") or {}).get("select") or ()}
    stored = "result_ref" in record
    wanted = {path_text(path): path for path in payload_paths(plan, demand)} if stored else {}
    extracted: dict[str, Any] = {}
    left_out: dict[str, Any] = {}
    for name, path in {**wanted, **selected}.items():
        if name not in selected and any(path_text(path[:length]) in extracted for length in range(len(path))):
            continue  # a part of what is there
        value, size = await payload.part(path, most)
        if size > most:
            if name in selected:
                raise ResultUnavailable(
                    f"task {plan.name}: what `select` calls {name} takes {size} bytes; "
                    f"at most {most} are kept in the log (results.extracted_max_bytes)"
                )
            left_out[name] = await payload.measured(path, size)
        elif value is MISSING:
            left_out[name] = None
        else:
            extracted[name] = value
    if extracted:
        record["extracted"] = extracted
    if left_out and stored:
        record["left_out"] = left_out
