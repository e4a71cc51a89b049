"""A whole cluster (PostgreSQL, NATS, two servers, three workers) whose parts are killed at random: log = ledger, nothing stuck.

CHAOS_SEED, CHAOS_RUNS and CHAOS_KILLS choose other moments, and more of them.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from cluster.local import Cluster
from cluster.storm import SETTINGS, Storm

SEED = int(os.environ.get("CHAOS_SEED", "20261116"))
RUNS = int(os.environ.get("CHAOS_RUNS", "60"))
STRIKES = int(os.environ.get("CHAOS_KILLS", "8"))
#: all of it, on a machine that is busy with other tests
PATIENCE_S = 100.0 + RUNS / 2

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE_S + 120)]


def test_log_is_ledger_and_nothing_is_stuck_whatever_is_killed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, settings=SETTINGS)
    try:
        cluster.start()
        storm = Storm(cluster, runs=RUNS, strikes=STRIKES, seed=SEED)
        verdict = asyncio.run(storm.rage(PATIENCE_S))
        done = f"{verdict.runs} runs, {verdict.tasks} tasks, {verdict.repeated} done again"
        print(f"{done}; {len(storm.quarantined)} were in quarantine for a while; {dict(storm.struck)}")
        assert not verdict.problems, "\n".join(verdict.problems[:20]) + cluster.last_words()
        assert (verdict.runs, verdict.tasks) == (RUNS, 6 * RUNS)
        assert sum(storm.struck.values()) >= 1
    finally:
        cluster.close()
