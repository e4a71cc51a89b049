"""Regular expressions that are compiled on first use.

Compiling one takes as long as importing a module, and a short program uses few of those in its modules.
"""

from __future__ import annotations

import re
from typing import Any

_compile: Any = re.compile


class PatternOnDemand:
    """Behaves like the compiled expression."""

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source = source, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(_compile(*self._source), name)
        setattr(self, name, value)  # found without this method from now on
        return value


def pattern(source: str, flags: int = 0) -> re.Pattern[str]:
    """Like re.compile, but compiled on first use.

    Call the methods of the result; `re.match(result, …)` does not accept it.
    """
    compiled: Any = PatternOnDemand(source, flags)
    return compiled  # type: ignore[no-any-return]  # it has all that a pattern has
