"""Logs as an older release wrote them: runs that ended while something was still open in their logs.

They must lead to the same state as they did then, event by event, and be readable in every dialect. The files are never
written anew.
"""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.dialects.names import DIALECTS
from arclog.model.envelope import Subject, widen
from arclog.model.events import Event
from arclog.testing.harness import World
from arclog.testing.laws import rendered_log
from tests.golden.older_view import view

OLDER = sorted((Path(__file__).parent / "older").glob("*.json"))


def read(path: Path) -> tuple[dict[str, Any], list[Event]]:
    kept = json.loads(path.read_text(encoding="utf-8"))
    return kept, msgspec.convert(kept["events"], list[Event])


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_an_older_log_leads_to_the_same_state(path: Path) -> None:
    kept, events = read(path)
    program = World(kept["playbook"]).program
    state = State(execution_id=kept["execution_id"])
    digests = []
    for event in events:
        apply(program, state, event)
        digests.append(sha256(msgspec.json.encode(view(state), order="sorted")).hexdigest()[:10])
    assert msgspec.to_builtins(view(state)) == kept["view"]
    assert digests == kept["digests"]


def test_an_attempt_that_an_older_release_restarted_is_told_as_failed() -> None:
    kept, events = read(Path(__file__).parent / "older" / "retry_in_flight.json")
    log = [
        widen(event, Subject(kept["execution_id"], "older"), seq, 1000 + seq, event.at)
        for seq, event in enumerate(events, 1)
    ]
    steps = [
        (event.name, event.record["logicalAttemptId"])
        for event in rendered_log("run", log)
        if event.record.get("stepId") == "start"
    ]
    assert steps == [("StepStarted", 1), ("StepFailed", 1), ("StepStarted", 2), ("StepCompleted", 2)]


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_an_older_log_is_told_in_every_dialect(path: Path) -> None:
    kept, events = read(path)
    subject = Subject(kept["execution_id"], "older")
    log = [widen(event, subject, seq, 1000 + seq, event.at) for seq, event in enumerate(events, 1)]
    for dialect in DIALECTS:
        records = rendered_log(dialect, log)
        assert records
        assert all(earlier.seq <= other.seq for earlier, other in pairwise(records))
