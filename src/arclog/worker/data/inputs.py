"""The snapshot of a task's rendered inputs that task.started carries, capped in size."""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec.json import encode

_PREVIEW = 512


def snapshot(config: dict[str, Any], max_bytes: int) -> Any:
    """The config itself, or a preview with its size and digest when it is large."""
    if not config:
        return None
    body = encode(config)
    if len(body) <= max_bytes:
        return config
    preview = body[:_PREVIEW].decode("utf-8", "ignore")
    return {"preview": preview, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest(), "truncated": True}
