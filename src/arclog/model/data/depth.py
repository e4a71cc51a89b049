"""How deep data from outside may be nested: what is written must be read again from any depth of calls."""

from __future__ import annotations

from typing import Any

#: Levels of a workload or of a signal's data; a task's result may have as many.
DEEPEST_INPUT = 200


def nested_deeper(value: Any, levels: int) -> bool:
    """Whether JSON data has more levels of lists and maps; walks level by level, so that depth costs no stack."""
    level = [value]
    while level := [one for one in level if isinstance(one, dict | list)]:
        if levels == 0:
            return True
        levels -= 1
        level = [part for one in level for part in (one.values() if isinstance(one, dict) else one)]
    return False
