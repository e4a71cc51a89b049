"""What every dialect must keep to, over the log of any run that has ended. Breaking one is an AssertionError."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from arclog.dialects import legacy, lifecycle
from arclog.dialects.names import DIALECTS, reader_of, state_of
from arclog.dialects.rendering import Rendered
from arclog.dialects.run_record import RunSubject
from arclog.model import status
from arclog.testing.closed import check_layers, check_run_records

SUBJECT = RunSubject("00000000-0000-4000-8000-000000000001", "flows/demo", "3")
_RUN_ENDS = {"RunCompleted", "RunFailed", "RunCancelled"}

Log = Sequence[dict[str, Any]]


def told(dialect: str, log: Log) -> list[Rendered]:
    """The whole log in a dialect."""
    reader = reader_of(dialect, SUBJECT)
    said = [one for envelope in log for one in reader.render(envelope)]
    return said + reader.rest()


def check_dialects(log: Log, cursor: int) -> None:
    """All laws; `cursor` is where a second reader begins."""
    for dialect in DIALECTS:
        said = told(dialect, log)
        assert all(a.seq <= b.seq for a, b in pairwise(said)), f"{dialect} is out of order"
        check_cursor(dialect, log, cursor)
    for dialect in ("lifecycle", "wire", "legacy"):
        check_layers(dialect, [one.record for one in told(dialect, log)])
    check_commands(told("lifecycle", log))
    check_run(told("run", log))
    back = [lifecycle.canonical(one.record) for one in told("lifecycle", log)]
    assert [one for one in back if one is not None] == list(log), "lifecycle cannot be undone"
    assert [legacy.canonical(one.record) for one in told("legacy", log)] == list(log), "legacy cannot be undone"


def check_cursor(dialect: str, log: Log, cursor: int) -> None:
    """A reader that begins behind a cursor tells what one from the beginning tells there, with the state and without."""
    whole = told(dialect, log)
    first = reader_of(dialect, SUBJECT)
    head = [one.record for envelope in log[:cursor] for one in first.render(envelope)]
    second = reader_of(dialect, SUBJECT, state_of(first))
    tail = [one.record for envelope in log[cursor:] for one in second.render(envelope)]
    assert head + tail + [one.record for one in second.rest()] == [one.record for one in whole], f"{dialect} with state"
    needs = first.needs
    given = [one for one in log if needs is None or one["event_type"] in needs or one["seq"] > cursor]
    found = [one.record for one in told(dialect, given) if one.seq > cursor]
    assert found == [one.record for one in whole if one.seq > cursor], f"{dialect} without state"


def check_commands(said: Sequence[Rendered]) -> None:
    """Stored and derived facts together are the whole, legal life of each command."""
    lives: dict[str, list[str]] = defaultdict(lambda: [status.PENDING])
    fences: dict[str, list[int]] = defaultdict(list)
    for one in said:
        if one.name.startswith("command.") and not one.record.get("informative"):
            lives[one.record["command_id"]].append(one.record["status"])
        if one.name == "command.claimed":
            fences[one.record["command_id"]].append(one.record["fence"])
    assert all(found == list(range(1, len(found) + 1)) for found in fences.values()), f"fences: {dict(fences)}"
    over = status.terminal_states("command")
    for command, life in lives.items():
        for before, after in pairwise(life):
            assert status.may("command", before, after), f"command {command}: {life}"
        assert life[-1] in over, f"command {command} is never over: {life}"


def check_run(said: Sequence[Rendered]) -> None:
    """One beginning, one end, a key for each record, and every attempt of a step in its order."""
    records = [one.record for one in said]
    assert len({one["idempotencyKey"] for one in records}) == len(records), "two records share a key"
    kinds = [one["eventType"] for one in records]
    assert kinds.count("RunStarted") <= 1
    assert [kind for kind in kinds if kind in _RUN_ENDS] == kinds[-1:], "not exactly one end, at the end"
    attempts: dict[str, int] = {}
    for one in records:
        if "stepId" in one:
            step, attempt = one["stepId"], one["logicalAttemptId"]
            before = attempts.get(step, 0)
            begins = one["eventType"] == "StepStarted"
            assert attempt == before + begins, f"{step}: {attempt} after {before}"
            attempts[step] = attempt
    check_run_records(records)
