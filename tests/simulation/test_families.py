"""Families of random playbooks with every construct: they end, or `why` says what they wait for and they end once it is
given; one terminal event each; replay is live; nothing is left open; and dying anywhere changes nothing.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from arclog.testing.families import Family, family
from arclog.testing.virtual import run_virtually
from tests.simulation.relatives import Relatives
from tests.simulation.support import EAGER, LEAN, seeds

#: Places to die that are tried per family.
TRIES = 2
#: A process that dies after every commit is tried with runs of so many commits at most: each is a life.
SHORT = 40


def run(drawn: Family, it: Relatives, trouble: Random | None = None) -> dict[str, Any]:
    try:
        return run_virtually(it.run(trouble))
    except BaseException as problem:
        problem.add_note(f"SIMULATION_SEED={drawn.seed} reproduces it: {drawn!r}")
        raise


def settings_of(seed: int) -> Any:
    return EAGER if seed % 3 else LEAN


@pytest.mark.parametrize("group", seeds(96, 8, first=30_000), ids=str)
def test_they_end_once_what_they_wait_for_is_given(group: range) -> None:
    for seed in group:
        drawn = family(seed)
        run(drawn, Relatives(drawn, settings_of(seed), workers=1 + seed % 2))


@pytest.mark.parametrize("group", seeds(120, 8, first=40_000), ids=str)
def test_signals_at_any_moment_leave_the_laws_whole(group: range) -> None:
    for seed in group:
        drawn = family(seed)
        run(drawn, Relatives(drawn, settings_of(seed), workers=1 + seed % 2), Random(seed))


def ends_the_same(drawn: Family, expected: dict[str, Any], it: Relatives) -> None:
    outcome = run(drawn, it)
    one_race = any(playbook.branching or playbook.racing for playbook in (drawn.main, *drawn.children))
    if one_race and expected["status"] == "FAILED":
        # Which failure comes first, and what it cancels, is the branches' or the items' own race.
        assert outcome["status"] == "FAILED"
    elif not any(playbook.racing for playbook in (drawn.main, *drawn.children)):
        assert outcome == expected, f"SIMULATION_SEED={drawn.seed}: {drawn!r}"


@pytest.mark.parametrize("group", seeds(64, 8, first=50_000), ids=str)
def test_dying_once_anywhere_changes_nothing(group: range) -> None:
    for seed in group:
        drawn = family(seed)
        if not drawn.calm:
            continue
        plain = Relatives(drawn, settings_of(seed), watch=False)
        expected = run(drawn, plain)
        draw = Random(seed)
        for _ in range(TRIES):
            it = Relatives(drawn, settings_of(seed), watch=False)
            setattr(it, draw.choice(("die_before", "die_after")), draw.randint(1, plain.commits))
            ends_the_same(drawn, expected, it)


@pytest.mark.parametrize("group", seeds(96, 8, first=60_000), ids=str)
def test_dying_after_every_commit_changes_nothing(group: range) -> None:
    for seed in group:
        drawn = family(seed)
        if not drawn.calm:
            continue
        plain = Relatives(drawn, settings_of(seed), watch=False)
        expected = run(drawn, plain)
        if plain.commits <= SHORT:
            it = Relatives(drawn, settings_of(seed), watch=False)
            it.die_after_every_commit = True
            ends_the_same(drawn, expected, it)
            assert it.deaths >= min(plain.commits, 2) - 1


def test_the_families_have_every_construct() -> None:
    """Whoever adds a construct to the language adds it to the families."""
    drawn = "".join(
        playbook.text for seed in range(30_000, 30_096) for playbook in (family(seed).main, *family(seed).children)
    )
    for word in (
        *("for_s", "until", "signal", "approval", "playbook", "workbook", "choose", "while", "max_in_flight", "loop"),
        *("timeout_s", "deadline_s", "concurrency", "queue", "reject", "required", "admit", "join", "best_effort"),
        *("retry", "jump", "break", "fail", "set_ctx", "set_iter", "reducer", "inclusive", "on_no_match", "emit"),
    ):
        assert f'"{word}"' in drawn, word
