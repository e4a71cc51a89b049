"""Carries out all attacks and prints what each got: `./x attack [CLASS …] [--tree FOLDER | --before REVISION] [--full]`.
`./x attack demo` measures what another tenant notices of them; `./x attack hostile` lets a hostile python task loose as root and as an
ordinary user, with and without confinement.

With `--before`, an older arclog is attacked in the same way first, and the table has a column for each.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.security import demo
from tests.security.hostile import BY_PROMISE
from tests.security.moves import Attack, attacks, carried_out
from tests.security.site import ROOT, Site
from tests.security.test_confinement import Case, attacked

DEMO, HOSTILE = "demo", "hostile"
#: The name of the process that starts and ends a confined task.
GUARD = "arclog-guard"
_SET_CHILD_SUBREAPER = 36
#: The arclog in which the attacks of the first audit were found.
AUDITED = "8cb47d61"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./x attack", description="Attack a server, and print what each attack got.")
    parser.add_argument(
        "classes",
        nargs="*",
        help=f"classes of attacks (tests/security/attacks), all by default; or {DEMO}: a server with 1 GiB; or {HOSTILE}: what a "
        "hostile python task gets, as root and as an ordinary user",
    )
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="the working tree whose arclog is attacked; this one by default"
    )
    parser.add_argument(
        "--before",
        metavar="REVISION",
        nargs="?",
        const=AUDITED,
        help=f"attack the arclog of this revision too, and compare; {AUDITED}, which was audited, when none is named",
    )
    parser.add_argument("--full", action="store_true", help="also those attacks that take long")
    if list(argv) == [DEMO]:
        table = demo.demonstrated()
        print(demo.table(table))
        return 0 if table.holds else 1
    if list(argv) == [HOSTILE]:
        return hostile_table()
    options = parser.parse_args(argv)
    classes = {attack["class"] for attack in attacks()}
    if unknown := set(options.classes) - classes:
        parser.error(f"there is no class {', '.join(sorted(unknown))}; there are {', '.join(sorted(classes))}")
    chosen = [
        attack
        for attack in attacks()
        if (not options.classes or attack["class"] in options.classes) and (options.full or not attack.get("full"))
    ]
    adopt_orphans()
    columns: dict[str, list[str]] = {}
    if options.before:
        with older(options.before) as tree:
            columns[options.before] = results(tree, chosen, options.before)
    columns["now"] = results(options.tree, chosen, "now")
    print_table(chosen, columns)
    return 1 if any(columns["now"]) else 0


@contextmanager
def older(revision: str) -> Iterator[Path]:
    """A tree with the sources of a revision."""
    with tempfile.TemporaryDirectory(prefix="arclog-before-") as folder:
        archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=False)
        if archive.returncode:
            raise SystemExit(f"--before: {archive.stderr.decode().strip()}; is it in this clone?")
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def adopt_orphans() -> None:
    """Become the parent of processes whose parents end. An older arclog leaves tasks behind that go on starting processes."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """End the tasks whose server is gone, with all processes that they started."""
    while True:
        children = _children_by_parent()
        tasks = [child for child in children[os.getpid()] if _name(child) == GUARD]
        if not tasks:
            return
        processes = list(tasks)
        for process in processes:
            processes += children[process]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in processes:  # parents first: what a process leaves behind becomes a child of this one
            with suppress(ChildProcessError):
                os.waitpid(process, 0)


def _children_by_parent() -> defaultdict[int, list[int]]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(path.name))
    return children


def _name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def results(tree: Path, chosen: Sequence[Attack], label: str) -> list[str]:
    site = Site(tree)
    try:
        rows = []
        for number, attack in enumerate(chosen, start=1):
            rows.append(carried_out(site, attack))
            end_orphans()
            print(f"\r{label}: {number} of {len(chosen)}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return rows
    finally:
        site.close()


def hostile_table() -> int:
    """What the attacks of `hostile.py` got from a server's worker, by user. Needs root, which can become somebody else."""
    off = {"tasks.confinement": "off"}
    cases = {
        "root, off": Case("root", True, off, ""),
        "ordinary, off": Case("ordinary", True, off, ""),
        "root": Case("root", True, {}, ""),
        "ordinary": Case("ordinary", True, {}, ""),
    }
    results_by_label = {label: attacked(case, "python")["got"] for label, case in cases.items()}
    print(f"| promise | attack | {' | '.join(cases)} |")
    print(f"| --- | --- |{' --- |' * len(cases)}")
    for promise, tried in BY_PROMISE.items():
        for attack in tried:
            cells = ("got it" if got[attack.__name__] else "nothing" for got in results_by_label.values())
            print(f"| {promise or '-'} | {attack.__name__.replace('_', ' ')} | {' | '.join(cells)} |")
    return (
        1
        if any(results_by_label[label][name] for label in ("root", "ordinary") for name in results_by_label[label])
        else 0
    )


def print_table(chosen: Sequence[Attack], columns: dict[str, list[str]]) -> None:
    print(f"| class | attack | {' | '.join(columns)} |")
    print(f"| --- | --- |{' --- |' * len(columns)}")
    for at, attack in enumerate(chosen):
        cells = [(column[at] or "stopped").replace("|", "\\|").replace("\n", " ") for column in columns.values()]
        print(f"| {attack['class']} | {attack['name']} | {' | '.join(cells)} |")
    for label, found in columns.items():
        print(f"\n{label}: {sum(not got for got in found)} of {len(found)} stopped")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
