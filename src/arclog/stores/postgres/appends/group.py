"""A group: appends that go out as one request, and what its answer says of each of them."""

from __future__ import annotations

from arclog.stores.postgres.appends.outcomes import Item
from arclog.stores.postgres.appends.statement import Wave
from arclog.stores.postgres.connection.pipeline import Call, Rows


class Group:
    def __init__(self, items: list[Item], at: int, queries: dict[str, str]) -> None:
        self.items = items
        self._at = at
        waves: list[Wave] = []
        self._places: list[list[Item]] = []
        rows = 0
        depth: dict[int, int] = {}
        for item in items:
            own = item.what.execution_id
            index = depth.get(own, 0)
            while index < len(waves) and not waves[index].takes(item.what):
                index += 1
            if index == len(waves):
                waves.append(Wave())
                self._places.append([])
            depth[own] = index + 1
            waves[index].add(item.what, item.derived, at, rows)
            self._places[index].append(item)
            rows += len(item.derived.rows)
        self.calls: list[Call] = []
        #: of the calls, those that say who won
        self._verdicts: list[int] = []
        for wave in waves:
            self.calls += wave.calls(queries, at)
            self._verdicts.append(len(self.calls) - 1)

    def settle(self, found: list[Rows]) -> list[Item]:
        """Answers those that were committed, and gives back those that were refused."""
        refused: list[Item] = []
        for index, items in zip(self._verdicts, self._places, strict=True):
            won = {execution_id for execution_id, _ in found[index]}
            for item in items:
                if item.what.execution_id in won:
                    item.settle(item.appended(self._at))
                else:
                    refused.append(item)
        return refused
