"""W12 results: what it costs to store a large result, hashed, checked and durable, beside zstd alone."""

from __future__ import annotations

from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, in_new_folder, interleaved, spread

GOAL = Goal("<=", 2.0)
FLAT = Goal("<=", 64.0)


def measure(options: Options) -> Findings:
    size = options.size(1024, 16)
    findings = Findings("W12", f"results: {size} MiB of JSON-like data into the result store")
    taken = interleaved(
        options.size(options.repeat, 1),
        {
            "arclog": in_new_folder(options, lambda folder: stored(folder, "arclog", size)),
            "zstd": in_new_folder(options, lambda folder: stored(folder, "zstd", size)),
            "rows": in_new_folder(options, lambda folder: stored(folder, "rows", size)),
        },
    )
    arclog, zstd, rows = taken["arclog"], taken["zstd"], taken["rows"]
    findings.ratios.append(Line("arclog ÷ zstd alone", arclog.over(zstd, "store_s"), "×", GOAL))
    findings.ratios.append(Line("arclog as a list of rows ÷ zstd alone", rows.over(zstd, "store_s"), "×"))
    more = arclog.of("rss_mib").value - zstd.of("rss_mib").value
    findings.ratios.append(Line("peak memory over that of zstd alone", spread([more]), "MiB", FLAT))
    findings.figures += [
        Line("arclog, bytes", arclog.of("store_s"), "s"),
        Line("arclog, bytes, CPU", arclog.of("cpu_s"), "s"),
        Line("arclog, a list of rows, item by item", rows.of("store_s"), "s"),
        Line("zstd alone, one thread, to a synced file", zstd.of("store_s"), "s"),
        Line("arclog, read whole and checked", arclog.of("read_s"), "s"),
        Line("arclog, on the disk", arclog.of("stored", 1 / (1 << 20)), "MiB", digits=1),
        Line("zstd alone, on the disk", zstd.of("stored", 1 / (1 << 20)), "MiB", digits=1),
        Line("arclog, peak memory", arclog.of("rss_mib"), "MiB", digits=0),
    ]
    findings.notes.append(
        "arclog packs parts of 1 MiB on several threads and hashes beside them; zstd alone packs on one"
    )
    return findings


def stored(folder: str, way: str, size: int) -> Sample:
    sample = child("run_results.py", way, str(size), folder, folder=folder)
    if way == "arclog":
        expect("sha256", sample["sha256"], sample["wanted"])
        expect("bytes read", sample["bytes"], size << 20)
    elif way == "rows":
        expect("the last item is read back", sample["last"], True)
    return sample
