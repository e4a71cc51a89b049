"""Kind `assert`: an error outcome unless all its conditions hold. The worker itself runs it, without a tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arclog.model.outcome import Outcome, error, failed


def asserted(config: Mapping[str, Any]) -> Outcome:
    """The outcome of an assert task: `that` are its conditions as they came out, `text` as they were written."""
    broken = [text for text, holds in zip(config["text"], config["that"], strict=True) if not holds]
    if not broken:
        return Outcome(result={"checked": len(config["that"])})
    message = config.get("message") or f"does not hold: {'; '.join(broken)}"
    return failed(error("exception", str(message), code=str(config.get("code") or "ASSERT")))
