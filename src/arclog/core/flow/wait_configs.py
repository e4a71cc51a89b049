"""What the rendered config of an engine kind says: whether it can be carried out, and when its wait ends by itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from arclog.core.transitions.state import Wait
from arclog.core.transitions.timers import after
from arclog.model.data.shapes import LONGEST_S
from arclog.model.ids import MICROS
from arclog.model.outcome import TaskError, error
from arclog.plan.net import TaskPlan

#: Nothing waits longer than this, by a template either.
MAX_WAIT_S = LONGEST_S


def ends_at(wait: Wait, task: TaskPlan, now: int) -> tuple[int, TaskError | None]:
    """When the wait ends by itself (0 = it does not), and what is wrong with its config."""
    try:
        until = _READ[wait.kind](wait.config, now)
        limit = task.spec.get("timeout")
        if limit is not None:
            late = after(now, _seconds(limit, "spec.timeout"))
            until = min(until, late) if until else late
    except ValueError as problem:
        return 0, error("config", f"task {wait.task}: {problem}")
    return until, None


def is_over(wait: Wait, now: int) -> bool:
    """Whether a `wait` for a time has waited long enough; anything else that ends by its timer is late."""
    config = wait.config
    if wait.kind != "wait" or "signal" in config:
        return False
    return now >= (_instant(config["until"]) if "until" in config else after(wait.since, float(config["for_s"])))


def _of_wait(config: dict[str, Any], now: int) -> int:
    ways = [key for key in ("for_s", "until", "signal") if config.get(key) is not None]
    if len(ways) != 1:
        raise ValueError(f"exactly one of for_s, until and signal is needed, not {len(ways)}")
    if ways != ["signal"]:
        if "timeout_s" in config:
            raise ValueError("timeout_s goes with signal")
        return after(now, _seconds(config["for_s"], "for_s", 0.0)) if ways == ["for_s"] else _instant(config["until"])
    if not isinstance(config["signal"], str) or not config["signal"]:
        raise ValueError(f"signal is a name, not {_shown(config['signal'])}")
    return _timeout(config, now)


def _of_approval(config: dict[str, Any], now: int) -> int:
    approvers = config.get("approvers") or []
    if not isinstance(approvers, list) or not all(isinstance(each, str) for each in approvers):
        raise ValueError(f"approvers is a list of roles and names, not {_shown(approvers)}")
    return _timeout(config, now)


def _of_playbook(config: dict[str, Any], _: int) -> int:
    path, version = config.get("path", config.get("file")), config.get("version")
    if not isinstance(path, str) or not path:
        raise ValueError(f"path is the catalog path of a playbook, not {_shown(path)}")
    if version is not None and not (str(version).isascii() and str(version).isdigit() and int(version) > 0):
        raise ValueError(f"version is a whole number from 1, not {_shown(version)}")
    if not isinstance(config.get("args") or {}, dict):
        raise ValueError(f"args is a map, not {_shown(config['args'])}")  # noqa: TRY004 - the author's value
    if not isinstance(config.get("wait", True), bool):
        raise ValueError(f"wait is true or false, not {_shown(config['wait'])}")  # noqa: TRY004 - the author's value
    return 0


_READ = {"wait": _of_wait, "approval": _of_approval, "playbook": _of_playbook}


def _timeout(config: dict[str, Any], now: int) -> int:
    given = config.get("timeout_s")
    return 0 if given is None else after(now, _seconds(given, "timeout_s"))


def _seconds(value: Any, what: str, least: float | None = None) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} is a number of seconds, not {_shown(value)}")  # noqa: TRY004 - the author's value
    if not (value >= least if least is not None else value > 0) or value > MAX_WAIT_S:
        raise ValueError(
            f"{what} is {value}; it must be {'0 or more' if least == 0 else 'more than 0'} and at most {MAX_WAIT_S}"
        )
    return float(value)


def _instant(value: Any) -> int:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"until is an RFC 3339 time such as 2027-01-31T09:00:00Z, not {_shown(value)}") from None
    if moment.tzinfo is None:
        raise ValueError(f"until needs an offset or Z: {_shown(value)}")
    return max(1, round(moment.timestamp() * MICROS))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
