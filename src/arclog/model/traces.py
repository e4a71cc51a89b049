"""Ids of traces and spans, worked out from the ids in the log: whoever sees a task knows its span, and nobody has to tell.

A run is a trace; its steps are spans below the run's, its task runs spans below their step's.
"""

from __future__ import annotations

import hashlib


def trace_id(execution_id: int | str) -> int:
    """128 bits, never 0."""
    return int.from_bytes(hashlib.sha256(f"trace:{execution_id}".encode()).digest()[:16]) or 1


def span_id(key: str) -> int:
    """64 bits, never 0. The key of a run is its execution id, of a step run `id:step:run`, of a task run its own."""
    return int.from_bytes(hashlib.sha256(f"span:{key}".encode()).digest()[:8]) or 1


def traceparent(execution_id: str, task_key: str) -> str:
    """The W3C header that makes what a task asks for a part of its trace."""
    return f"00-{trace_id(execution_id):032x}-{span_id(task_key):016x}-01"
