"""Names whose addresses change between two questions (DNS rebinding), against everything that a server sends by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.names import Names
from tests.security.rebinding import ROUNDS, SENDERS
from tests.security.site import ALLOWED, FORBIDDEN, NAMES, Trap

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs port 53 and a mount namespace")

#: Where the attacker's name server answers; the one of the other tests of this process has an address of its own.
ADDRESS = NAMES.replace("127.53.", "127.54.")


@pytest.fixture
def trap() -> Iterator[Trap]:
    trap = Trap()
    yield trap
    trap.close()


@pytest.fixture
def names() -> Iterator[Names]:
    names = Names(ADDRESS, ALLOWED, FORBIDDEN)
    yield names
    names.close()


def test_no_sender_reaches_an_address_that_is_forbidden(trap: Trap, names: Names) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.security.rebinding", str(trap.port), str(names.file)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert trap.reached == []
    # The name did change, and every sender reached what is allowed: for half of the questions, and where both are answered.
    assert names.queries["rebind.test"] == ROUNDS * len(SENDERS)
    assert trap.allowed == (ROUNDS // 2 + ROUNDS) * len(SENDERS)
    for sender in set(SENDERS) - {"traces"}:  # whose client follows the redirect, to an address that is refused
        answers = {name: sum("302" in answer for answer in got[name][sender]) for name in got}
        assert answers == {"rebind.test": ROUNDS // 2, "both.test": ROUNDS, "forbidden.test": 0, "mapped.test": 0}
