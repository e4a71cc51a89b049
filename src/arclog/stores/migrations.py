"""Migrations in two phases: what servers of the release before can live with, and what they cannot.

Law: a store notes the oldest schema that code must know to use it (`oldest`). A migration without a line `-- oldest: N` only
adds, and code of the release before goes on beside it. One that takes away or changes what older code uses has that line,
and ships a release after the one that stopped using it.
"""

from __future__ import annotations

import re

_ONLINE = re.compile(r"^-- online$", re.MULTILINE)
_OLDEST = re.compile(r"^-- oldest: (\d+)$", re.MULTILINE)


def is_online(script: str) -> bool:
    """It holds nothing but indexes, and a store that can build them beside its users does so (`-- online`)."""
    return bool(_ONLINE.search(script))


def oldest_for(script: str) -> int:
    """The oldest schema that code must know once the migration has run; 0: it only adds."""
    found = _OLDEST.search(script)
    return int(found.group(1)) if found else 0
