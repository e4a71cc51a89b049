"""python -m bench.scale.report: the tables of docs/scale.md, from the measured inputs, with a simulation beside the model."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from bench.scale.model import DAY_S, Cluster, Inputs, capacity, latency, load, shards_for, steps_a_second
from bench.scale.simulate import simulate

SERVERS = (1, 2, 5, 10, 20, 50, 100)
EVENTS_A_DAY = (1e7, 1e8, 1e9, 1e10)
#: A day's busiest hour against its mean.
PEAK = 3.0


def growth(inputs: Inputs, cluster: Cluster) -> list[str]:
    """What n servers on one PostgreSQL carry, and what stops them."""
    lines = [
        "| servers | steps/s | events/day | stops at | connections | append, mean at 70 % |",
        "| ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for n in SERVERS:
        sized = replace(cluster, servers=n)
        result = capacity(inputs, sized)
        mean = latency(inputs, sized, 0.7 * result.steps).total_s
        room = "" if result.fits else f" (has {cluster.max_connections})"
        day = result.steps * inputs.events * DAY_S
        lines.append(
            f"| {n} | {result.steps:,.0f} | {day:.1e} | {result.first} | {result.connections}{room} | {1000 * mean:.1f} ms |"
        )
    return lines


def targets(inputs: Inputs, cluster: Cluster) -> list[str]:
    """What a load takes."""
    lines = [
        "| events/day | steps/s at the peak | servers | shards | pool | WAL of a shard | stored a day |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for events in EVENTS_A_DAY:
        steps = steps_a_second(inputs, events, PEAK)
        grown = shards_for(inputs, cluster, steps)
        wal = steps / grown.shards * inputs.wal_bytes / 1e6
        stored = events / inputs.events * inputs.stored_bytes / 1e9
        lines.append(
            f"| {events:.0e} | {steps:,.0f} | {grown.servers} | {grown.shards} | {grown.pool} | {wal:.1f} MB/s | {stored:,.1f} GB |"
        )
    return lines


def checked(inputs: Inputs, cluster: Cluster) -> list[str]:
    """Model against simulation, at 70 % of the capacity and at twice of it."""
    lines = [
        "| servers | shards | load | steps/s, model | simulated | append, model | simulated |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for servers, shards in ((1, 1), (20, 4)):
        sized = replace(cluster, servers=servers, shards=shards)
        most = capacity(inputs, sized)
        inner = min(value for part, value in most.parts.items() if part != "one publisher")
        seconds = 12_000 / inner
        seen = simulate(inputs, sized, 0.7 * inner, seconds=seconds)
        mean = latency(inputs, sized, 0.7 * inner).total_s
        lines.append(
            f"| {servers} | {shards} | 70 % | {0.7 * inner:,.0f} | {seen.steps:,.0f} | {1000 * mean:.2f} ms | {1000 * seen.latency_s:.2f} ms |"
        )
        over = simulate(inputs, sized, 2 * inner, seconds=seconds)
        lines.append(f"| {servers} | {shards} | 200 % | {inner:,.0f} | {over.steps:,.0f} | – | – |")
    return lines


def tables(inputs: Inputs, machine: dict[str, str], cluster: Cluster) -> str:
    """What docs/scale.md shows. Everything in it follows from the inputs and the seed."""
    measured = ["| input | of one step |", "| --- | ---: |"]
    measured += [f"| {words} | {form.format(getattr(inputs, name) * scale)} |" for name, words, form, scale in _INPUTS]
    parts = [
        measured,
        [f"Measured on {machine['cores']} cores of {machine['processor']}, {machine['disk']}, {machine['date']}."],
        growth(inputs, cluster),
        targets(inputs, cluster),
        checked(inputs, cluster),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)


_INPUTS = (
    ("events", "events", "{:.1f}", 1),
    ("server_cpu_s", "CPU of a server, HTTP to its worker included", "{:.2f} ms", 1000),
    ("database_cpu_s", "CPU of PostgreSQL", "{:.2f} ms", 1000),
    ("transactions", "transactions, claims and looks included", "{:.1f}", 1),
    ("wal_bytes", "WAL", "{:,.0f} bytes", 1),
    ("stored_bytes", "stored, indexes included", "{:,.0f} bytes", 1),
    ("fsync_s", "one flush (a commit waits for one or two, shared)", "{:.2f} ms", 1000),
    ("publish_s", "publishing one event", "{:.3f} ms", 1000),
    ("messages", "messages of the bus", "{:.1f}", 1),
)


def main(argv: list[str]) -> int:
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    print(tables(*load(), Cluster()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
