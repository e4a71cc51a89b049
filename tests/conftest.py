"""What every test gets: reproducible random data, and a home of its own."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.servers.memory import memory

# Servers that tests start themselves; each plugin imports its drivers only when a test asks for the server.
pytest_plugins = ["tests.early_failures", "tests.servers.postgres", "tests.servers.nats", "tests.servers.arclog"]

# `ci` (the default) draws the same examples every time, so a red test is red for everybody; `explore` looks further.
# Both print what reproduces a failure: HYPOTHESIS_PROFILE=explore ./x pytest …
settings.register_profile("ci", derandomize=True, print_blob=True, deadline=None, database=None)
settings.register_profile("explore", print_blob=True, deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_INTERRUPTED_AGAIN_S = 5
_NUMBERS = count()
#: Tests whose folders are in memory (tests/servers/memory.py).
IN_MEMORY = (
    "tests/conformance/",
    "tests/integration/client/",
    "tests/integration/engine/",
    "tests/integration/history/",
    "tests/integration/results/",
    "tests/integration/secrets/",
    "tests/integration/server/",
    "tests/integration/stores/",
)
_ROOM_GIB = 4
#: The folders of tests, in the order in which they run: groups that take minutes come first.
LONGEST_FIRST = (
    *("browser", "security", "server", "deploy", "chaos", "bench", "docs", "e2e"),
    *("simulation", "integration", "conformance", "golden", "seeds", "project", "unit"),
)
#: Folders in which no test takes long.
SHORT = ("conformance", "golden", "seeds", "unit")


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the developer's runs or settings."""
    for name in [name for name in os.environ if name.startswith("ARCLOG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ARCLOG_HOME", str(_new_folder(tmp_path_factory.getbasetemp(), "home")))


@pytest.fixture
def tmp_path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _memory: Path | None
) -> Iterator[Path]:
    """A new folder, as pytest's own fixture makes it, at a cost that does not grow with the number of tests before."""
    name = re.sub(r"\W", "_", request.node.name)[:26]
    if _memory is None or not request.node.nodeid.startswith(IN_MEMORY):
        yield _new_folder(tmp_path_factory.getbasetemp(), name)
        return
    folder = _new_folder(_memory, name)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _memory(request: pytest.FixtureRequest) -> Iterator[Path | None]:
    """A folder in memory for this process. Who looks at what tests leave gives `--basetemp`, and has all of it there."""
    place = memory(_ROOM_GIB)
    # pytest-xdist gives every process a base of its own.
    asked: dict[str, bool] = getattr(
        request.config, "workerinput", {"basetemp_is_given": _basetemp_is_given(request.config)}
    )
    if place is None or asked["basetemp_is_given"]:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="arclog-tests-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["basetemp_is_given"] = _basetemp_is_given(node.config)


def _basetemp_is_given(config: pytest.Config) -> bool:
    return config.getoption("basetemp") is not None


def _new_folder(base: Path, name: str) -> Path:
    # `factory.mktemp` reads the names of all folders of the run to find a free number: 5 ms after 3,000 tests.
    folder = base / f"{name}_{next(_NUMBERS)}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Search for garbage only among what the tests make. What is made here, modules and tests, lives as long as the process; to search
    it again and again took 40% of the time in which a process collects all tests, and each process collects them all.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests start first, so that short ones fill the processes at the end. Tests that share a fixture of their module stay in one
    process, which makes it once; so do the many short ones, since pytest-xdist's bookkeeping grows with the square of the groups.
    """
    items.sort(key=_turn)
    for item in items:
        if item.get_closest_marker("xdist_group") is None and (_tier(item) in SHORT or _shares_a_fixture(item)):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _turn(item: pytest.Item) -> int:
    tier = _tier(item)
    return LONGEST_FIRST.index(tier) if tier in LONGEST_FIRST else 0


def _tier(item: pytest.Item) -> str:
    """The folder of `tests` that a test is in."""
    parts = item.nodeid.split("/", 2)
    return parts[1] if len(parts) > 2 else ""


def _shares_a_fixture(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    known = item._fixtureinfo.name2fixturedefs.values()
    return any(definition.scope == "module" for definitions in known for definition in definitions)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(settings: Any) -> Iterator[None]:
    """End a test that takes too long, also where the exception is raised in a callback: the event loop logs that and goes on."""
    yield
    fail: Any = signal.getsignal(signal.SIGALRM)
    if settings.method != "signal" or not callable(fail):
        return
    is_first = True

    def interrupt(signum: int, frame: Any) -> None:
        nonlocal is_first
        loop = asyncio._get_running_loop()
        if is_first or loop is None:
            is_first = False
            fail(signum, frame)
        else:
            loop.stop()

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, _INTERRUPTED_AGAIN_S)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--redraw", action="store_true", help="rewrite docs that are drawn from the code, and golden logs")
