"""Who serves which runs of a home."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from arclog.model.errors import StoreUnavailable
from arclog.ports.storage.marks import ATTEMPT, HELD_SLOTS, MARKS_PER_SLOT, STEP_SLOT, WRITE_SLOT
from arclog.wiring.homes.presence import FileMarks, Presence


def test_a_run_is_served_by_a_process_for_it_for_its_caller_or_for_all(tmp_path: Path) -> None:
    presence = Presence(tmp_path)
    assert not presence.is_served([1])
    presence.enter("one", 7)
    assert presence.is_served([7])
    assert presence.is_served([9, 7]), "whoever runs the caller runs what it calls"
    assert not presence.is_served([8])
    presence.enter("one", 8)
    assert not presence.is_served([8]), "a process is entered once"
    presence.leave("one")
    assert not presence.is_served([7])
    presence.enter("all")
    assert presence.is_served([8])
    presence.leave("all")


def test_a_process_that_is_gone_serves_nothing(tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / f"host-{os.getpid()}-ff").write_text("7")
    assert not Presence(tmp_path).is_served([7]), "nobody holds its lock"


def test_the_marks_of_a_dead_process_are_crashes_and_the_records_of_an_older_release_are_not(tmp_path: Path) -> None:
    dead = FileMarks(tmp_path, "dead")
    dead.begin(0, (1, 3))
    dead.begin(STEP_SLOT, (2, 3))
    dead.begin(HELD_SLOTS[-1], (4, 5 | ATTEMPT))
    dead._marks.close()
    os.close(dead._file)
    back = FileMarks(tmp_path, "back")
    assert set(back.left()) == {(1, 3), (2, 3)}
    assert {(crash.execution_id, crash.work, crash.count) for crash in back.crashes()} == {(1, 3, 1), (2, 3, 1)}
    back.close()


def test_what_a_dead_process_left_is_there_until_it_is_in_the_store(tmp_path: Path) -> None:
    dead = FileMarks(tmp_path, "dead", is_shared=True)
    dead.begin(0, (1, 3))
    dead._marks.close()
    os.close(dead._file)
    for _ in range(2):
        back = FileMarks(tmp_path, "back", is_shared=True)
        assert (back.left(), back.dead()) == ([(1, 3)], ["dead"])
        sibling = FileMarks(tmp_path, "sibling", is_shared=True)
        assert (sibling.left(), sibling.dead()) == ([], []), "one process looks after it"
        sibling.close()
        back.close()
    back = FileMarks(tmp_path, "back", is_shared=True)
    back.judged()
    back.close()
    assert FileMarks(tmp_path, "later", is_shared=True).dead() == []


def test_a_disk_that_fills_up_during_the_start_is_named(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(StoreUnavailable, match="No space left on device"):
            FileMarks(tmp_path, "one")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_slot_holds_the_marks_of_a_shared_commit(tmp_path: Path) -> None:
    dead = FileMarks(tmp_path, "dead")
    many = [(run, 3) for run in range(1, MARKS_PER_SLOT + 1)]
    for slot in (0, STEP_SLOT, WRITE_SLOT):
        dead.begin(slot, *many)
    dead.end(0)
    dead.begin(STEP_SLOT, (99, 1))
    dead._marks.close()
    os.close(dead._file)
    back = FileMarks(tmp_path, "back")
    assert set(back.left()) == {*many, (99, 1)}
    assert all(crash.count == 1 for crash in back.crashes()), "a mark in several slots is one crash"
    back.begin(STEP_SLOT, *many)
    back.begin(STEP_SLOT, (99, 1))
    back._marks.close()
    os.close(back._file)
    assert FileMarks(tmp_path, "later").left() == [(99, 1)]
