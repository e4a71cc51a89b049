"""Laws of every dialect, over the logs of real runs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arclog.dialects.names import DIALECTS, MEANINGS, asked_for, canonical_types, reader_of, state_of
from arclog.model.events import REGISTRY, STATUSES
from arclog.testing.laws import check_dialects
from tests.unit.dialects.support import NAMES, SUBJECT, log_of, rendered_log

BOTH = [(dialect, name) for dialect in DIALECTS for name in NAMES]


@pytest.mark.parametrize(("dialect", "name"), BOTH)
def test_every_log_can_be_told_and_stays_in_order(dialect: str, name: str) -> None:
    rendered = rendered_log(dialect, log_of(name))
    assert rendered
    assert all(a.seq <= b.seq for a, b in pairwise(rendered))
    key = DIALECTS[dialect].name_key
    assert all(record.record[key] == record.name for record in rendered)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_every_dialect_keeps_its_laws_from_any_cursor(name: str, data: st.DataObject) -> None:
    log = log_of(name)
    check_dialects(log, data.draw(st.integers(0, len(log))))


def test_what_is_remembered_goes_away_with_the_run() -> None:
    for name in NAMES:
        for dialect in ("lifecycle", "wire", "run"):
            reader = reader_of(dialect, SUBJECT)
            for envelope in log_of(name):
                reader.render(envelope)
            assert len(state_of(reader)) < 200, f"{dialect} of {name}: {state_of(reader)!r}"


def test_informative_events_change_nothing_that_is_remembered() -> None:
    log = [dict(record) for record in log_of("retry")]
    noise = [{**record, "informative": True, "seq": 0} for record in log]
    for dialect in ("lifecycle", "run"):
        reader = reader_of(dialect, SUBJECT)
        for envelope in log[:10]:
            reader.render(envelope)
        reader.held_back()
        before = state_of(reader)
        for envelope in noise:
            reader.render(envelope)
        reader.held_back()
        assert state_of(reader) == before


@pytest.mark.parametrize("name", ["chain", "retry", "cancelled", "unhandled_failure"])
def test_what_producers_say_of_every_type_leaves_the_laws_as_they_are(name: str) -> None:
    log: list[dict[str, Any]] = []
    for envelope in log_of(name):
        log.append({**envelope, "seq": len(log) + 1})
        of_producer = {
            "informative": True,
            "source": "producer",
            "meta": {"producer": "etl"},
            "payload": {"state": "X"},
        }
        log.append({**envelope, **of_producer, "seq": len(log) + 1, "event_id": str(len(log))})
    check_dialects(log, len(log) // 2)
    for dialect in ("lifecycle", "wire", "legacy", "canonical"):
        mine = [
            record.record
            for record in rendered_log(dialect, log)
            if record.source["source"] == "producer" and not record.derived
        ]
        assert len(mine) == len(log) // 2
        assert {record["source"] for record in mine} == {"producer"}
    lifecycle = [record.record for record in rendered_log("lifecycle", log) if record.source["source"] == "producer"]
    assert {record["status"] for record in lifecycle} <= set(STATUSES), "no layer's state comes from them"


# -- names ------------------------------------------------------------------------------------------------------------


def test_every_name_of_every_dialect_means_something_canonical() -> None:
    for name, meanings in MEANINGS.items():
        assert meanings
        assert all(meaning.canonical in REGISTRY for meaning in meanings), name
        assert all(
            status in REGISTRY[meaning.canonical].statuses for meaning in meanings for status in meaning.statuses
        ), name


@pytest.mark.parametrize(
    ("dialect", "name"), [(dialect, name) for dialect in DIALECTS for name in ("retry", "jump", "wait")]
)
def test_a_filter_in_the_dialects_own_names_finds_exactly_them(dialect: str, name: str) -> None:
    rendered = rendered_log(dialect, log_of(name))
    for wanted in {record.name for record in rendered} & MEANINGS.keys():
        kept = {record.name for record in rendered if asked_for(record, [wanted])}
        assert wanted in kept
        types = canonical_types([wanted])
        assert all(
            record.derived or record.source["event_type"] in types for record in rendered if asked_for(record, [wanted])
        )


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("playbook.completed", []),
        ("playbook.failed", ["playbook.finished"]),
        ("RunFailed", ["playbook.finished"]),
        ("playbook_failed", ["playbook.finished"]),
        ("call.error", ["task.failed"]),
        ("StepFailed", ["policy.task.evaluated"] * 3 + ["step.failed"]),
        ("tool.processed", ["task.done", "task.failed"]),
        ("step.enter", ["step.started"]),
    ],
)
def test_filters_take_names_of_any_dialect(wanted: str, expected: list[str]) -> None:
    rendered = rendered_log("canonical", log_of("retry"))
    assert [record.name for record in rendered if asked_for(record, [wanted])] == expected


def test_a_canonical_filter_works_on_records_of_another_dialect() -> None:
    assert [record.name for record in rendered_log("run", log_of("retry")) if asked_for(record, ["step.failed"])] == [
        "StepFailed"
    ]
    assert [
        record.name for record in rendered_log("lifecycle", log_of("chain")) if asked_for(record, ["command.completed"])
    ] != []
