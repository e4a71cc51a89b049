"""What every part of the store needs: connections and statements."""

from __future__ import annotations

from arclog.ports.clock import Clock
from arclog.stores.postgres.connection.pool import Pool
from arclog.stores.postgres.log.partitions import Spans
from arclog.stores.rows import Codec


class Part:
    _pool: Pool
    #: statements by name
    _sql: dict[str, str]
    _codec: Codec
    _clock: Clock
    _spans: Spans
    place: str


def shown(text: str) -> str:
    """A text that people alone read: what PostgreSQL cannot hold is replaced, and stops nothing."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
