"""The model of scale agrees with a simulation that knows none of its formulas, and its inputs can be measured."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from bench.harness import ROOT
from bench.scale import measure, report
from bench.scale.model import (
    CONNECTIONS,
    DATABASE,
    PUBLISHER,
    SERVERS,
    WAL,
    Cluster,
    Inputs,
    capacity,
    flush_wait,
    latency,
    load,
    save,
    shards_for,
    steps_a_second,
)
from bench.scale.simulate import Seen, simulate

#: Round figures, near to what is measured.
INPUTS = Inputs(
    events=7,
    server_cpu_s=0.0015,
    database_cpu_s=0.0006,
    transactions=0.6,
    wal_bytes=2500,
    stored_bytes=1500,
    fsync_s=0.0005,
    publish_s=0.00001,
    messages=8,
)
#: The stated error of the model: of throughputs, and of mean latencies up to 70 % of the capacity.
THROUGHPUT, MEAN = 0.03, 0.10
#: Where waiting for a connection prevails: who waits for a flush then holds others up.
MEAN_OF_CONNECTIONS = 0.15

CASES = {
    SERVERS: (INPUTS, Cluster(servers=3)),
    DATABASE: (INPUTS, Cluster(servers=12, database_cores=2)),
    CONNECTIONS: (replace(INPUTS, fsync_s=0.004), Cluster(servers=4, pool=3)),
    "shards": (INPUTS, Cluster(servers=12, database_cores=1, shards=3)),
}


def near(found: float, wanted: float, error: float) -> bool:
    return abs(found - wanted) <= error * wanted


def simulated(name: str, share: float, seed: int = 7) -> tuple[Seen, float]:
    inputs, cluster = CASES[name]
    steps = share * capacity(inputs, cluster).steps
    return simulate(inputs, cluster, steps, seconds=12_000 / steps, seed=seed), steps


@pytest.mark.parametrize("name", CASES)
def test_a_cluster_carries_what_the_model_says_and_no_more(name: str):
    inputs, cluster = CASES[name]
    most = capacity(inputs, cluster)
    assert name in (most.first, "shards")
    seen, _ = simulated(name, 2.0)
    assert near(seen.steps, most.steps, THROUGHPUT), (seen, most)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_below_that_it_is_as_fast_and_as_busy_as_the_model_says(name: str, share: float):
    inputs, cluster = CASES[name]
    seen, steps = simulated(name, share)
    expected = latency(inputs, cluster, steps)
    assert near(seen.steps, steps, THROUGHPUT)
    assert near(seen.latency_s, expected.total_s, MEAN_OF_CONNECTIONS if name == CONNECTIONS else MEAN), (
        seen,
        expected,
    )
    assert near(seen.database_busy, expected.busy[DATABASE], THROUGHPUT)
    assert near(seen.server_busy, expected.busy[SERVERS], THROUGHPUT)


def test_a_publisher_that_is_too_slow_falls_behind_as_the_model_says():
    inputs, cluster = replace(INPUTS, publish_s=0.001), Cluster(servers=2)
    most = capacity(inputs, cluster)
    assert most.first == PUBLISHER
    late = simulate(inputs, cluster, 3 * most.steps, seconds=20, seed=3)
    assert near(late.unpublished, 20 * 2 * most.steps * inputs.events, 0.05)
    early = simulate(inputs, cluster, 0.5 * most.steps, seconds=20, seed=3)
    assert early.unpublished < 20 * inputs.events


def test_a_seed_decides_everything():
    assert simulated(SERVERS, 0.7)[0] == simulated(SERVERS, 0.7)[0]
    assert simulated(SERVERS, 0.7)[0] != simulated(SERVERS, 0.7, seed=8)[0]


def test_the_comparison_would_find_a_wrong_formula():
    """With the wait for a flush forgotten, or whole waits instead of halves, model and simulation are further apart."""
    seen, steps = simulated(SERVERS, 0.7)
    right = latency(*CASES[SERVERS], steps).total_s
    assert not near(seen.latency_s, right - flush_wait(steps, INPUTS.fsync_s), MEAN)
    assert not near(
        seen.latency_s, right + (right - INPUTS.server_cpu_s - INPUTS.database_cpu_s - INPUTS.fsync_s), MEAN
    )


def test_flushes():
    assert flush_wait(0.001, 0.01) == pytest.approx(0.01, rel=0.001)  # alone: one flush
    assert flush_wait(100_000, 0.01) == pytest.approx(0.015)  # always somebody before: half of one, and one
    assert 0.01 < flush_wait(100, 0.01) < 0.015


def test_a_plan_leaves_room_in_every_part():
    steps = steps_a_second(INPUTS, 1e9, peak=3)
    grown = shards_for(INPUTS, Cluster(), steps)
    computed = capacity(INPUTS, grown)
    assert computed.fits
    assert all(steps <= 0.6 * most + 1e-6 for most in computed.parts.values())
    fewer = replace(grown, servers=grown.servers - 1)
    assert steps > 0.6 * capacity(INPUTS, fewer).steps


def test_the_model_knows_the_default_pool():
    assert Cluster().pool == Settings().integer("store.connections")


def test_wal_and_connections_are_seen():
    assert capacity(INPUTS, Cluster(servers=100, wal_bandwidth=1e6)).first == WAL
    assert not capacity(INPUTS, Cluster(servers=100)).fits


# -- the measured inputs and the page ---------------------------------------------------------------------------------


def test_inputs_are_measured_on_a_real_postgresql(tmp_path: Path):
    measured = measure.measure(2, 10, str(tmp_path), tries=1, published=200)
    save(measured, {"cores": "2"}, tmp_path / "inputs.json")
    inputs, _ = load(tmp_path / "inputs.json")
    assert inputs == measured
    assert inputs.events == pytest.approx(load()[0].events, rel=0.5)
    assert inputs.wal_bytes > 100
    assert inputs.fsync_s > 0
    assert inputs.publish_s > 0
    assert {"date", "cores", "processor", "commit"} <= set(load()[1])


def test_the_page_shows_what_the_model_says_of_the_measured_inputs(request: pytest.FixtureRequest):
    """docs/scale.md holds the tables as `python -m bench.scale.report --check` prints them."""
    page = Path(ROOT, "docs/scale.md")
    inputs, machine = load()
    drawn = report.tables(inputs, machine, Cluster())
    text = page.read_text()
    pattern = r"(<!-- drawn by bench/scale/report.py -->\n).*(<!-- drawn until here -->)"
    whole = re.sub(pattern, lambda found: f"{found[1]}{drawn}\n{found[2]}", text, flags=re.DOTALL)
    if request.config.getoption("--redraw"):
        page.write_text(whole)
    assert page.read_text() == whole, "run ./x pytest tests/bench/test_scale.py --redraw"
