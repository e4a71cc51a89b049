"""A plan has one digest, whichever process compiles it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_every_process_gives_a_playbook_the_same_digest():
    """Whatever order Python's sets have in it."""
    program = """
from pathlib import Path
from arclog.plan.build import build_or_raise
from arclog.plan.net import digest, encode
from arclog.wiring.kinds import KindSpecs, tool_kinds
for path in sorted(Path("examples").glob("*.yaml")):
    print(path.name, digest(encode(build_or_raise(path.read_text("utf-8"), path.name, KindSpecs(tool_kinds())))))
"""
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1
    assert digests.pop().count("\n") > 10
