"""The watch over an attacked server fails an attack when the other tenant is refused, waits too long or gets no answer."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import httpx2
import pytest

from tests.security.moves import carried_out
from tests.security.site import Site, health_problem, neighbour_problem

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("security")]

URL = "http://server"
HARMLESS = {"request": {"as": "anybody", "path": "/health"}, "status": [200], "never": []}
Answers = Callable[[httpx2.Request], httpx2.Response]


def problem_with(answers: Answers, most_s: float = 60.0) -> str:
    with httpx2.Client(transport=httpx2.MockTransport(answers)) as client:
        return neighbour_problem(client, URL, "key", most_s)


def answers(*, post: int = 201, head: int = 200, ended: bool = True, state: str = "COMPLETED") -> Answers:
    """A server that answers with these to the start of a run, to the wait for its end and with its summary."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return httpx2.Response(post, json={"execution_id": "1"})
        if request.url.path.endswith("/head"):
            return httpx2.Response(head, json={"ended": ended})
        return httpx2.Response(200, json={"state": state})

    return answer


def breaks_off(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ReadError("connection reset", request=request)


def test_a_run_that_completes_is_no_problem() -> None:
    assert problem_with(answers()) == ""


@pytest.mark.parametrize("status", [401, 429, 503])
def test_a_refused_run_is_a_problem(status: int) -> None:
    assert problem_with(answers(post=status)).startswith(f"a run of the other tenant was refused: HTTP {status}")
    assert problem_with(answers(head=status)).startswith(
        f"a run of the other tenant could not be followed: HTTP {status}"
    )


def test_a_failed_an_unfinished_and_an_unanswered_run_are_problems() -> None:
    assert problem_with(answers(state="FAILED")) == "a run of the other tenant ended as FAILED"
    assert problem_with(answers(ended=False), most_s=0.05) == "a run of the other tenant did not end within 0 s"
    assert problem_with(breaks_off) == "a run of the other tenant could not be started: ReadError connection reset"


def test_health_must_be_answered_with_200() -> None:
    for status, expected in ((200, ""), (429, "/health was answered with HTTP 429")):
        transport = httpx2.MockTransport(lambda _, status=status: httpx2.Response(status))
        with httpx2.Client(transport=transport) as client:
            assert health_problem(client, URL) == expected
    with httpx2.Client(transport=httpx2.MockTransport(breaks_off)) as client:
        assert health_problem(client, URL) == "/health was not answered: ReadError connection reset"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    attacked = Site()
    yield attacked
    attacked.close()


def test_an_attack_fails_when_the_neighbour_is_refused_meanwhile(site: Site) -> None:
    assert carried_out(site, HARMLESS) == ""
    key = site.keys["victim", "engineer"]
    site.keys["victim", "engineer"] = "revoked"
    try:
        site.wait_for_neighbour()
        assert "a run of the other tenant was refused: HTTP 401" in site.harm()
    finally:
        site.keys["victim", "engineer"] = key
    site.wait_for_neighbour()
    site.harm()
    assert carried_out(site, HARMLESS) == ""


def test_an_attack_fails_when_a_run_of_the_neighbour_takes_longer_than_its_bound(site: Site) -> None:
    site.wait_for_neighbour()
    assert "a run of the other tenant took" in site.harm(delay_s=0.0)


def test_the_death_of_the_server_is_reported_once(site: Site) -> None:
    os.kill(site.pid, signal.SIGKILL)
    while site.alive():
        time.sleep(0.01)
    assert site.harm() == "the server died"
    site.wait_for_neighbour()
    assert site.harm() == ""
