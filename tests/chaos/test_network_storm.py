"""The network between any two of a cluster is cut, flaps, is slow or goes one way only, while its parts are killed as well.

CHAOS_SEED, CHAOS_RUNS and CHAOS_KILLS choose other moments, and more of them.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from cluster.local import Cluster
from cluster.storm import NETWORK_SETTINGS, Storm

SEED = int(os.environ.get("CHAOS_SEED", "20261117"))
RUNS = int(os.environ.get("CHAOS_RUNS", "60"))
STRIKES = int(os.environ.get("CHAOS_KILLS", "8"))
#: all of it, on a machine that is busy with other tests
PATIENCE_S = 150.0 + RUNS / 2

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(PATIENCE_S + 120)]


def test_log_is_ledger_and_nothing_is_stuck_whoever_is_cut_off(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, settings=NETWORK_SETTINGS, proxied=True)
    try:
        cluster.start()
        storm = Storm(cluster, runs=RUNS, strikes=STRIKES, seed=SEED)
        verdict = asyncio.run(storm.rage(PATIENCE_S))
        print(f"{verdict.runs} runs, {verdict.tasks} tasks, {verdict.repeated} done again; {dict(storm.struck)}")
        print(f"cut: {dict(storm.cut)}")
        assert not verdict.problems, "\n".join(verdict.problems[:20]) + cluster.last_words()
        assert (verdict.runs, verdict.tasks) == (RUNS, 6 * RUNS)
        assert sum(storm.cut.values()) >= 1
    finally:
        cluster.close()
