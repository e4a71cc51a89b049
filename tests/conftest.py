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
pytest_plugins = [
    "tests.early_failures",
    "tests.servers.postgres",
    "tests.servers.nats",
    "tests.servers.arclog",
    "tests.servers.commands",
]

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
#: Folders whose tests wait for processes most of the time, in the order in which they start: groups that take minutes come first.
WAITING = ("browser", "security", "chaos", "server", "deploy", "bench", "docs", "e2e", "integration")
#: Of the run, by when the last of them start: the rest is for tests that take milliseconds, so that all processes end together.
WAITING_SHARE = 0.9
#: Folders whose tests compute. Those without long tests are grouped by file: the bookkeeping of pytest-xdist grows with the square of
#: the number of groups.
COMPUTING = ("simulation", "conformance", "project", "seeds", "golden", "unit")
BY_FILE = COMPUTING[1:]


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
    options: dict[str, bool] = getattr(
        request.config, "workerinput", {"basetemp_is_given": _basetemp_is_given(request.config)}
    )
    if place is None or options["basetemp_is_given"]:
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
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that share a fixture of their module stay in one process, which makes it once."""
    if config.getoption("loadgroup", default=False):  # otherwise tests share a browser with those before and after them
        items[:] = mixed(items)
    for item in items:
        if item.get_closest_marker("xdist_group") is None and (_tier(item) in BY_FILE or _shares_a_fixture(item)):
            item.add_marker(pytest.mark.xdist_group(_file(item)))


def mixed(items: list[pytest.Item]) -> list[pytest.Item]:
    """File by file, waiting tests beside computing ones, which use the cores that the others leave idle."""
    places: dict[str, float] = {}
    for tiers, share in ((WAITING, WAITING_SHARE), (COMPUTING, 1.0)):
        of_kind = sorted((item for item in items if _tier(item) in tiers), key=lambda item: tiers.index(_tier(item)))
        for number, item in enumerate(of_kind):
            places.setdefault(_file(item), share * number / len(of_kind))
    return sorted(items, key=lambda item: places.get(_file(item), 0.0))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _tier(item: pytest.Item) -> str:
    """The folder of `tests` that a test is in."""
    return item.nodeid.split("/", 2)[1] if item.nodeid.count("/") > 1 else ""


def _shares_a_fixture(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    return any(definition.scope == "module" for definitions in fixtures for definition in definitions)


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
