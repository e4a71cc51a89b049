"""The benchmarks run, at tiny sizes, and cry out when a result is wrong. Speeds are nobody's business here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import (
    growth,
    playbooks,
    report,
    versus,
    w2_chain,
    w7_python,
    w9_http,
    w10_transfer,
    w12_results,
    w13_ingest,
    w15_server,
    w16_idle,
    w17_bursts,
    w18_migrate,
    w19_authoring,
    w20_history,
    w21_claims,
)
from bench.harness import (
    ROOT,
    Findings,
    Goal,
    Line,
    Options,
    Samples,
    Spread,
    Wrong,
    child,
    in_new_folder,
    interleaved,
    run,
    spread,
)

PROGRAM = Path(ROOT, "bench", "run.py")


def test_interleaved_takes_turns_and_begins_with_another_contender_each_round():
    order: list[str] = []

    def contender(name: str):
        def take():
            order.append(name)
            return {"n": len(order)}

        return take

    taken = interleaved(2, {"a": contender("a"), "b": contender("b")})
    assert order == ["a", "b", "b", "a"]
    assert taken["a"].of("n") == spread([1, 4])


def test_a_ratio_is_that_of_the_medians_with_the_range_of_the_rounds():
    ours, theirs = Samples([{"s": 1.0}, {"s": 2.0}, {"s": 9.0}]), Samples([{"s": 2.0}, {"s": 8.0}, {"s": 4.0}])
    ratio = theirs.over(ours, "s")
    assert (ratio.value, ratio.low, ratio.high) == (2.0, 4 / 9, 4.0)


def test_a_chain_of_three_steps_is_run_and_checked(tmp_path):
    sample = w2_chain.arclog(str(tmp_path), 3)
    assert sample["counts"]["step.done"] == 3
    assert min(sample["run_s"], sample["cpu_s"], sample["total_s"], sample["gap_ms"]) > 0
    with pytest.raises(Wrong, match=r"step\.done events: got 3, expected 4"):
        playbooks.check_run(sample, steps=4, tasks=4)


def test_the_floor_commits_every_step(tmp_path):
    assert w2_chain.floor(str(tmp_path), 3)["head"] == 21


def test_python_tasks_in_a_loop_are_checked_by_their_results(tmp_path):
    sample = w7_python.arclog(str(tmp_path), 3, playbooks.PYTHON, "1")
    assert sample["task_ms"] > 0
    with pytest.raises(Wrong, match="the tasks' results"):
        playbooks.check_run(sample, steps=1, tasks=3, result="2")


def test_a_transfer_and_a_script_move_the_same_rows(tmp_path):
    measured = w10_transfer.measure(Options(quick=True, folder=str(tmp_path)))
    assert measured.notes == []
    assert min(line.spread.value for line in (*measured.ratios, *measured.figures)) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", ["arclog", "zstd", "rows"])
def test_results_are_stored_and_checked(tmp_path, way):
    assert w12_results.stored(str(tmp_path), way, 3)["store_s"] > 0


@pytest.mark.parametrize("batch", [0, 7])
def test_events_are_sent_to_a_real_server_and_counted(tmp_path, batch):
    assert w13_ingest.arclog(str(tmp_path), 20, 3, batch)["good"] == 20


def test_the_bare_server_answers(tmp_path):
    assert w13_ingest.bare(str(tmp_path), 20)["send_s"] > 0


def test_http_tasks_and_the_bare_client_ask_the_same_server(tmp_path):
    with w9_http.server() as url:
        assert w9_http.arclog(str(tmp_path), url, 3)["counts"]["task.done"] == 3
        assert w9_http.bare(str(tmp_path), url, 3)["good"] == 3


def test_a_child_that_fails_is_a_wrong_result(tmp_path):
    with pytest.raises(Wrong, match=r"exited with 3:\nno luck"):
        run([sys.executable, "-c", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"], str(tmp_path))


def test_every_contender_gets_an_empty_folder(tmp_path):
    contender = in_new_folder(
        Options(folder=str(tmp_path)), lambda folder: {"folder": folder, "in": list(Path(folder).iterdir())}
    )
    first, other = contender(), contender()
    assert first["in"] == other["in"] == []
    assert first["folder"] != other["folder"]
    assert list(tmp_path.iterdir()) == []


def test_the_report_shows_ratios_before_figures_and_says_which_goals_are_missed():
    findings = Findings("W9", "nothing")
    findings.ratios.append(Line("a ÷ b", spread([3.0]), "×", Goal("<=", 2.0)))
    findings.figures.append(Line("a", spread([1.0, 2.0, 3.0]), "ms"))
    text = report.text([findings], {"cores": "2"}, ["W8: broken"])
    assert (
        text.index("WRONG RESULT  W8: broken")
        < text.index("a ÷ b")
        < text.index("FIGURES")
        < text.index("[1.00 – 3.00]")
    )
    assert "≤ 2 ×        MISSED" in text
    assert "| W9 | a ÷ b | 3.00 × |  | ≤ 2 × | MISSED |" in report.markdown([findings], {}, [])


def test_a_goal_that_only_some_rounds_meet_is_unclear():
    findings = Findings("W9", "nothing", [Line("a ÷ b", Spread(1.8, 1.5, 2.5), "×", Goal("<=", 2.0))])
    assert report.text([findings], {}, []).splitlines()[1].endswith("≤ 2 ×        unclear: rounds disagree")


def test_a_busy_machine_is_said_first():
    assert report.text([], {"load before": "3.00", "cores": "2"}, []).startswith("NOISY")
    assert report.text([], {"fdatasync": "200 µs with 4 kB, before; 3000 µs after"}, []).startswith("NOISY")
    assert report.text([], {"load before": "0.10", "cores": "2"}, []).startswith("RATIOS")


def test_the_program_runs_a_workload_and_writes_json(tmp_path):
    target = tmp_path / "out.json"
    command = [sys.executable, str(PROGRAM), "w3", "--quick", "--json", str(target)]
    done = subprocess.run([*command, "--dir", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("RATIOS AND GOALS") < done.stdout.index("FIGURES") < done.stdout.index("MACHINE")
    assert json.loads(target.read_text())["workloads"][0]["workload"] == "W3"


def test_an_unknown_workload_is_refused():
    command = [sys.executable, str(PROGRAM), "W99"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no workload W99" in done.stderr


def test_streams_and_status_requests_of_a_server_are_checked(tmp_path):
    assert w15_server.streams(str(tmp_path), 3)["last_s"] > 0
    assert w15_server.status(str(tmp_path), 3)["p99_ms"] > 0


def test_idle_workers_are_counted(tmp_path):
    sample = w16_idle.idle(str(tmp_path), 2, 1)
    assert sample["queries_per_worker_s"] >= 0
    assert sample["alone_per_s"] > 0


def test_tests_of_playbooks_and_migrations_are_checked(tmp_path):
    sample = w19_authoring.arclog(str(tmp_path), 4, 3)
    assert sample["tests_per_s"] > 0
    assert sample["migrate_1000_s"] > 0


@pytest.mark.parametrize("kind", ["timers", "schedules"])
def test_all_of_a_burst_fire(tmp_path, kind):
    sample = w17_bursts.burst(str(tmp_path), kind, 20, 4)
    assert sample["took_s"] > 0
    assert sample["steps"] > 0


def test_a_store_of_the_schema_before_is_brought_up_to_date(tmp_path):
    assert w18_migrate.migrate(str(tmp_path), 30)["took_s"] > 0


def test_tenants_are_served_in_turn_while_claims_are_timed(tmp_path):
    sample = w21_claims.claims(str(tmp_path), 60, 20, 40)
    assert sample["tenants_served"] == 20
    assert sample["most_of_one_tenant"] == 2
    assert 0 < sample["p50_ms"] <= sample["p99_ms"]
    assert 0 < sample["bare_p50_ms"] <= sample["bare_p99_ms"]


def test_growth_is_told_by_the_largest_and_the_smallest_store():
    flat = growth.Row("sqlite", "list", "ms", (2.0, 9.0, 2.9))
    grows = growth.Row("sqlite", "claim", "ms", (2.0, 4.0, 40.0))
    within_noise = growth.Row("sqlite", "status", "ms", (0.01, 0.05))
    idle = growth.Row("sqlite", "idle CPU", "%", (0.4, 9.5))
    assert [row.verdict for row in (flat, grows, within_noise, idle)] == ["flat", "GROWS", "flat", "GROWS"]
    # Pages are counted, times depend on the machine.
    slow = growth.Row("sqlite", "list", "ms", (2.0, 40.0), pages=(60.0, 80.0))
    scans = growth.Row("sqlite", "list", "ms", (2.0, 2.1), pages=(60.0, 200.0))
    few = growth.Row("sqlite", "list", "ms", (2.0, 2.1), pages=(3.0, 12.0))
    bounded = growth.Row("sqlite", "failing playbooks", "ms", (1.0, 7.0, 7.5), pages=(100.0, 1600.0, 1610.0))
    unbounded = growth.Row("sqlite", "failing playbooks", "ms", (1.0, 7.0, 30.0), pages=(100.0, 1600.0, 8000.0))
    assert (bounded.verdict, unbounded.verdict) == ("flat, bounded", "GROWS")
    assert [row.verdict for row in (slow, scans, few)] == ["flat in pages", "GROWS", "flat"]
    text = growth.report([flat, grows], [100, 200, 300], {"cores": "2"}, ["a problem"], markdown=True)
    assert "| sqlite | claim | 2.00 ms | 4.00 ms | 40.00 ms | 20.00 |  | GROWS |" in text
    assert text.startswith("**Wrong:** a problem")


def test_a_small_store_is_filled_and_measured(tmp_path):
    home = str(tmp_path / "home")
    child("run_growth.py", home, "fill", "100", folder=str(tmp_path))
    sample = child("run_growth.py", home, "measure", "1", folder=str(tmp_path))
    again = child("run_growth.py", home, "measure", "1", folder=str(tmp_path))
    last = child("run_growth.py", home, "finish", folder=str(tmp_path), GROWTH_IDLE_S="0.2")
    assert last["removed"] == 1200
    assert {"execute, one step", "claim", "cancel", "list", "why", "schedule add"} <= set(sample["ms"])
    assert set(sample["pages"]) <= set(sample["ms"])
    assert sample["pages"]["execute, one step"] > 10
    row = growth._rows("sqlite", [growth._together([sample, again], last)])[0]
    assert row.values[0] == min(measurement["ms"][row.what] for measurement in (sample, again))


def test_the_first_pages_of_searches_are_found_and_timed():
    findings = Findings("W20", "history")
    w20_history.search(findings, "sqlite", Options(quick=True))
    (line,) = findings.ratios
    assert line.what.startswith("first page of 100 among 2")
    assert len(findings.figures) == 16


def test_two_revisions_are_compared_by_medians_and_by_their_best_rounds() -> None:
    values = {
        versus.Figure("W2", "arclog, a step", "ms"): ([1.0, 4.0, 2.0], [1.5, 1.0, 3.0]),
        versus.Figure("P4", "arclog, 200 runs", "runs/s"): ([100.0], [150.0]),
        versus.Figure("W2", "floor, a step", "ms"): ([1.0], [1.0]),
        versus.Figure("W9", "arclog, only here", "ms"): ([], [1.0]),
    }
    table = versus.report(values, "abc", {}, markdown=True).splitlines()
    assert table[2:4] == [
        "| W2 | arclog, a step | 2.000 ms | 1.500 ms | 0.75 | 1.00 |",
        "| P4 | arclog, 200 runs | 100.000 runs/s | 150.000 runs/s | 1.50 | 1.50 |",
    ]
    assert "floor" not in "".join(table)
    assert "only here" not in "".join(table)
