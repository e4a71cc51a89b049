"""gc of python environments: by the time of their last use, and never one in use."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from arclog.cli.runs.results import Swept, sweep_environments
from arclog.model.config.settings import Settings

NOW = 1_000_000.0


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Three environments: long unused, in use, and used a moment ago."""
    for name, used_at in (("old", NOW - 500), ("busy", NOW - 400), ("new", NOW - 10)):
        place = tmp_path / name
        (place / "lib").mkdir(parents=True)
        (place / "lib" / "code.py").write_bytes(b"x" * 5000)
        (tmp_path / f"{name}.lock").touch()
        os.utime(place, (used_at, used_at))
    return tmp_path


def settings(folder: Path, keep_s: float) -> Settings:
    return Settings({"python.environments": str(folder), "python.environments_keep_s": keep_s})


def test_what_is_long_unused_goes_and_what_is_in_use_stays(made):
    busy = os.open(made / "busy.lock", os.O_RDWR)
    try:
        fcntl.flock(busy, fcntl.LOCK_SH)
        would = sweep_environments(settings(made, 450), NOW, dry_run=True)
        assert would.environments == 1
        assert would.environment_bytes >= 5000
        assert (made / "old").exists()
        assert sweep_environments(settings(made, 100), NOW, dry_run=False) == would
    finally:
        os.close(busy)
    assert sorted(path.name for path in made.iterdir()) == ["busy", "busy.lock", "new", "new.lock"]
    assert sweep_environments(settings(made, 100), NOW, dry_run=False).environments == 1
    assert (made / "new").exists()


def test_no_folder_is_nothing_to_do(tmp_path):
    assert sweep_environments(settings(tmp_path / "none", 0), NOW, dry_run=False) == Swept()


def test_files_that_the_installer_shares_free_no_room(made):
    os.link(made / "old" / "lib" / "code.py", made / "cached.py")
    assert sweep_environments(settings(made, 450), NOW, dry_run=True).environment_bytes == 0
