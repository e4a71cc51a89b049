"""What hostile tasks get, by kind, user, level, and by what the kernel offers.

Each case is a worker in a process of its own (`victim`). What a promise of `sandbox.probe` says must hold there is held
against every attack that it is about; which promises hold is written here, case by case.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.security.hostile import BY_PROMISE
from tests.security.victim import CANARY, STATEMENTS

_ROOT = Path(__file__).parents[2]
_STRICT = {"tasks.confinement": "strict"}
_OFF = {"tasks.confinement": "off"}

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="becomes other users, and takes from the kernel what it offers"
)


class Case(NamedTuple):
    """One worker."""

    user: str
    #: a server's worker; else that of `arclog run`
    served: bool
    settings: Mapping[str, str]
    #: what the kernel does not offer
    without: str
    #: promises that do not hold
    lacking: frozenset[str] = frozenset()

    def __str__(self) -> str:
        level = self.settings.get("tasks.confinement", "standard")
        return "-".join(
            filter(None, (self.user, "served" if self.served else "run", level, self.without and f"no_{self.without}"))
        )


_WEAK = frozenset({"sockets", "bounds"})
_NOTHING_BUT_FILTERS = frozenset({"files", "writes", "processes", "sockets", "bounds"})
CASES = (
    *(Case(user, served, {}, "") for user in ("root", "ordinary") for served in (True, False)),
    *(Case(user, True, _STRICT, "") for user in ("root", "ordinary")),
    *(Case(user, True, {}, "landlock") for user in ("root", "ordinary")),
    *(Case(user, True, {}, "namespaces", _WEAK) for user in ("root", "ordinary")),
    *(Case(user, True, _STRICT, "namespaces", frozenset({"bounds"})) for user in ("root", "ordinary")),
    *(Case(user, False, {}, "namespaces", frozenset({"files", "sockets", "bounds"})) for user in ("root", "ordinary")),
    *(Case(user, True, {}, "both", _NOTHING_BUT_FILTERS) for user in ("root", "ordinary")),
)
#: What `arclog run` gives to the tasks of whoever starts it.
_ALLOWED_TO_RUN = {"loopback_of_the_machine", "socket_in_a_folder", "machine_by_http"}
#: Statements by promise; those that are not here are about files.
_STATEMENT_PROMISES = {
    "own_environment": "",
    "extension": "",
    "setting": "",
    "environment_of_the_worker": "processes",
    "machine_by_http": "network",
    "shared_memory_of_others": "sockets",
}
#: Attacks that get nothing here even from a task that is not confined: the first process is not its guard, root needs no
#: setuid program, python tasks never get new privileges, and the rest is refused by arguments or by this machine.
_NEED_MORE = {
    "bpf",
    "clone3",
    "file_by_handle",
    "file_in_the_home",
    "kernel_trigger",
    "kill_of_the_guard",
    "namespace_of_the_guard",
    "new_privileges",
    "perf",
    "root_of_the_guard",
    "setuid_program",
}
_PROMISE_OF = {attack.__name__: promise for promise, attacks in BY_PROMISE.items() for attack in attacks}


def attacked(case: Case, kind: str, **settings: Any) -> dict[str, Any]:
    """What the attacks of a kind got, and which promises do not hold."""
    spec = {
        "user": case.user,
        "served": case.served,
        "lacking": case.without,
        "kind": kind,
        "settings": {**case.settings, **settings},
    }
    # Removed here: an ordinary user cannot remove what root put there.
    with tempfile.TemporaryDirectory(prefix="arclog-victim-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.security.victim", json.dumps({**spec, "folder": folder})],
            cwd=_ROOT,
            env={**os.environ, "CANARY": CANARY},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def breaches(case: Case, answer: dict[str, Any], promise_of: Mapping[str, str]) -> dict[str, str]:
    """What attacks got although a promise holds that is against it."""
    allowed = set() if case.served else _ALLOWED_TO_RUN
    return {
        name: got
        for name, got in answer["got"].items()
        if got and name not in allowed and promise_of.get(name, "files") not in case.lacking
    }


@needs_root
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_hostile_python_task(case: Case) -> None:
    answer = attacked(case, "python")
    assert set(answer["lacking"]) == case.lacking
    assert breaches(case, answer, _PROMISE_OF) == {}
    assert set(answer["got"]) >= set(_PROMISE_OF)


@needs_root
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_hostile_build(case: Case) -> None:
    """A package of `requirements` that is built from source gets no more than a task."""
    answer = attacked(case, "build")
    assert set(answer["got"]) >= set(_PROMISE_OF) - {"home_moved_away"}
    assert breaches(case, answer, _PROMISE_OF) == {}


@needs_root
@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[5], CASES[9]], ids=str)
def test_a_hostile_shell_task(case: Case) -> None:
    assert breaches(case, attacked(case, "shell"), _PROMISE_OF) == {}


@needs_root
@pytest.mark.parametrize("case", [*CASES[:6], CASES[9]], ids=str)
def test_hostile_sql(case: Case) -> None:
    answer = attacked(case, "duckdb")
    assert set(answer["got"]) >= set(STATEMENTS)
    assert breaches(case, answer, _STATEMENT_PROMISES) == {}


@needs_root
@pytest.mark.parametrize(
    "case",
    [CASES[0], CASES[2], *(pytest.param(case, marks=pytest.mark.soak) for case in (CASES[8], CASES[14]))],
    ids=str,
)
def test_a_task_with_many_processes(case: Case) -> None:
    """Where the kernel holds them there are never more; elsewhere they are counted. In every case none is left."""
    got = attacked(case, "processes", **{"python.max_processes": 100_000, "tasks.max_threads": 320})["got"]
    assert got["left"] == []
    if "bounds" not in case.lacking:
        assert 0 < got["many_processes"] <= 320
    else:
        assert got["many_processes"] in (2000, "python.max_processes", "tasks.max_threads")


@needs_root
def test_the_attacks_work_where_nothing_is_confined() -> None:
    """What no attack can get proves nothing when it is kept."""
    case = Case("root", True, _OFF, "")
    answer = attacked(case, "python")
    for promise, attacks in BY_PROMISE.items():
        if promise:
            assert any(answer["got"][attack.__name__] for attack in attacks), promise
    stopped = {name for name, promise in _PROMISE_OF.items() if promise and not answer["got"][name]}
    assert stopped <= _NEED_MORE


@needs_root
def test_the_attacks_of_a_build_work_where_nothing_is_confined() -> None:
    answer = attacked(Case("root", True, _OFF, ""), "build")
    for promise, attacks in BY_PROMISE.items():
        if promise:
            assert any(answer["got"].get(attack.__name__) for attack in attacks), promise


@needs_root
def test_sql_works_where_nothing_is_confined() -> None:
    got = attacked(Case("root", True, _OFF, ""), "duckdb")["got"]
    assert got["key_in_the_home"]
    assert got["environment_of_the_worker"]
    assert got["destroyed"]
