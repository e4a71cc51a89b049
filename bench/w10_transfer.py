"""W10 transfer: rows from SQLite to PostgreSQL, beside a script of one's own that copies them."""

from __future__ import annotations

import os
import tempfile

from bench.harness import (
    Findings,
    Goal,
    Line,
    Options,
    Sample,
    Spread,
    child,
    expect,
    in_new_folder,
    interleaved,
    write,
)
from bench.playbooks import HEAD, check_run
from bench.postgres import missing, postgres, postgres_is_there

GOAL = Goal("<=", 2.0)


def measure(options: Options) -> Findings:
    rows = options.size(1_000_000, 2_000)
    findings = Findings("W10", f"transfer: {rows:,} rows of four columns from SQLite to PostgreSQL, in one transaction")
    if not postgres_is_there():
        return missing(findings)
    with tempfile.TemporaryDirectory(dir=options.folder or None, prefix="arclog-bench-") as folder:
        file = os.path.join(folder, "source.db")
        child("run_copy.py", "fill", file, str(rows), folder=folder)
        with postgres(options.folder) as dsn:
            child("run_copy.py", "look", dsn, "none", folder=folder)
            taken = interleaved(
                options.size(options.repeat, 1),
                {
                    "transfer": in_new_folder(options, lambda place: transfer(place, file, dsn, rows)),
                    "copy": in_new_folder(options, lambda place: copy(place, file, dsn, rows)),
                },
            )
    ours, bare = taken["transfer"], taken["copy"]
    findings.ratios.append(Line("a run with one transfer ÷ a bare COPY script", ours.over(bare, "run_s"), "×", GOAL))
    findings.figures += [
        Line("a run with one transfer", ours.of("run_s"), "s"),
        Line("the transfer's task", ours.of("first_task_ms", 0.001), "s"),
        Line("a bare COPY script, connecting included", bare.of("run_s"), "s"),
        Line("rows a second, transfer", _each(ours.of("run_s"), rows), "1/s", digits=0),
        Line("peak memory, transfer", ours.of("rss_mib"), "MiB", digits=0),
        Line("peak memory, script", bare.of("rss_mib"), "MiB", digits=0),
    ]
    return findings


def _each(spread: Spread, rows: int) -> Spread:
    return Spread(rows / spread.value, rows / spread.high, rows / spread.low)


def transfer(folder: str, file: str, dsn: str, rows: int) -> Sample:
    tool = (
        "  - step: start\n    tool:\n      kind: transfer\n"
        f"      source: {{kind: sqlite, database: '{file}', table: rows}}\n"
        f"      target: {{kind: postgres, dsn: '{dsn}', table: by_transfer, mode: replace, create: true}}\n"
    )
    playbook = write(folder, "transfer.yaml", HEAD + tool)
    sample = child("run_arclog.py", "one", playbook, os.path.join(folder, "home"), folder=folder)
    check_run(sample, steps=1, tasks=1, result=f'{{"rows": {rows}, "columns": ["id", "name", "amount", "note"]}}')
    _same(folder, dsn, "by_transfer", rows)
    return sample


def copy(folder: str, file: str, dsn: str, rows: int) -> Sample:
    sample = child("run_copy.py", "copy", file, dsn, "by_script", folder=folder)
    _same(folder, dsn, "by_script", rows)
    return sample


def _same(folder: str, dsn: str, table: str, rows: int) -> None:
    sums = child("run_copy.py", "look", dsn, table, folder=folder)["found"]
    names = sum(len(f"name of row {n}") for n in range(rows))
    wanted = [rows, rows * (rows - 1) // 2, rows * (rows - 1) / 16, (rows + 2) // 3, names]
    expect(f"rows and sums of {table}", sums, wanted)
