"""Runs the shell blocks of a documentation page in order, as a reader would type them.

A block is one of these, by its first line:

    ```sh             commands; the next ```text block, if one follows, is their output
    ```sh fails       the same, and they must exit with a code other than 0
    ```sh background  a server: it is started on a free port and stopped when the page is done
    ```yaml FILE      the content of a file that the page says to write

In an output `…` stands for any text, and a line that is only `…` for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.servers.ports import free_port

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(sh|yaml|text)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    language: str
    option: str
    text: str


def blocks_of(text: str) -> list[Block]:
    return [Block(language, option.strip(), body) for language, option, body in _BLOCK.findall(text)]


def output_pattern(expected: str) -> re.Pattern[str]:
    pattern = ""
    for line in expected.splitlines():
        if line == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += "[^\n]*".join(re.escape(part) for part in line.split("…")) + r" *\n"
    return re.compile(pattern)


def environment(home: Path) -> dict[str, str]:
    """The reader's shell: `arclog` of this environment is on the path, and its runs are kept in a home of their own."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "ARCLOG_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "120"}


def run_commands(script: str, folder: Path, home: Path, *, fails: bool = False) -> str:
    """Runs a block and returns what it printed on stdout."""
    done = subprocess.run(
        ["bash", "-eu", "-c", script], cwd=folder, env=environment(home), capture_output=True, text=True, check=False
    )
    assert (done.returncode != 0) == fails, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def start_server(command: str, folder: Path, home: Path) -> subprocess.Popen[str]:
    """Starts a server and returns once it has printed its address."""
    port = free_port()
    process = subprocess.Popen(
        [*command.split(), "--port", str(port)],
        cwd=folder, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"http://127.0.0.1:{port}")
    return process
