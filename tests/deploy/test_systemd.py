"""The units, judged by systemd itself."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from arclog.cli.args import parser_of
from arclog.model.config.settings import TABLE

UNITS = sorted((Path(__file__).parents[2] / "deploy/systemd").glob("*.service"))
#: of `systemd-analyze security`, 0 (confined) to 10: a worker runs programs, a server does not
EXPOSURE = {"arclog-server.service": 2.0, "arclog-worker@.service": 3.0}


@pytest.fixture
def analyze(tmp_path: Path):
    """systemd-analyze on a copy whose program is there: /opt/arclog is not on this machine."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze here (Debian: apt install systemd)")

    def run(unit: Path, *words: str) -> subprocess.CompletedProcess[str]:
        for path in UNITS:
            (tmp_path / path.name).write_text(path.read_text().replace("/opt/arclog/bin/arclog", "/bin/true"))
        named = tmp_path / unit.name.replace("@.", "@gpu.")
        if words[0] == "security":
            named = tmp_path / unit.name
        return subprocess.run(
            [program, *words, str(named)], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
        )

    return run


def test_there_are_both():
    assert [unit.name for unit in UNITS] == sorted(EXPOSURE)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_every_line(unit: Path, analyze):
    done = analyze(unit, "verify", "--recursive-errors=no")
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.stem.rstrip("@") in line]) == (0, [])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_is_confined(unit: Path, analyze):
    done = analyze(unit, "security", "--offline=true")
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd here is older than 250 and judges no unit that is not loaded")
    (level,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert float(level) <= EXPOSURE[unit.name], done.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_starts_what_arclog_understands(unit: Path):
    text = unit.read_text()
    (line,) = re.findall(r"(?m)^ExecStart=(.*)$", text)
    program, command, *rest = shlex.split(line.replace("%i", "gpu"))
    assert program == "/opt/arclog/bin/arclog"
    parser_of(command).parse(rest)
    variables = {row.variable for row in TABLE}
    assert set(re.findall(r"\b(ARCLOG_[A-Z_]+)=", "\n".join(re.findall(r"(?m)^Environment=.*$", text)))) <= variables


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_key_of_a_cluster_is_a_drop_in_that_systemd_understands(unit: Path, analyze, tmp_path: Path):
    folder = tmp_path / f"{unit.name.replace('@.', '@gpu.')}.d"
    folder.mkdir()
    text = (unit.parent / "secrets-key.conf").read_text()
    (folder / "secrets-key.conf").write_text(text)
    done = analyze(unit, "verify", "--recursive-errors=no")
    assert (done.returncode, [line for line in done.stderr.splitlines() if "secrets-key" in line]) == (0, [])
    variable, place = re.findall(r"(?m)^Environment=(\w+)=%d/(.*)$", text)[0]
    assert variable in {row.variable for row in TABLE}
    assert f"LoadCredential={place}:/etc/arclog/" in text


def test_the_server_gets_longer_than_it_drains():
    (stop,) = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", UNITS[0].read_text())
    assert int(stop) > next(row.default for row in TABLE if row.name == "server.drain_s")
