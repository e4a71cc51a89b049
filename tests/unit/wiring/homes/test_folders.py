"""A home and what is in it belong to their owner alone."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.wiring.embedded import embedded


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def rights(home: Path) -> dict[str, int]:
    return {path.name: mode(path) for path in (home, *home.iterdir())}


async def use(home: Path) -> dict[str, int]:
    """The rights of what is there while a home is in use."""
    async with embedded(Settings({"home": str(home)})) as runtime:
        await runtime.start_worker()
        return rights(home)


async def test_a_new_home_is_closed_to_others(tmp_path: Path) -> None:
    used = await use(tmp_path / "home")
    assert used["home"] == 0o700
    assert used["arclog.db"] == 0o600
    assert [name for name, bits in used.items() if bits & 0o077] == []


async def test_a_home_that_others_could_read_is_closed_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    await use(home)
    home.chmod(0o755)
    (home / "arclog.db").chmod(0o644)
    with caplog.at_level(logging.WARNING, "arclog"):
        used = await use(home)
        assert used["home"] == 0o700
        assert used["arclog.db"] == 0o600
        assert caplog.text.count("other users of this machine could read") == 1
        await use(home)
        assert caplog.text.count("other users of this machine could read") == 1


async def test_a_folder_with_other_things_in_it_keeps_its_rights(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir(0o755)
    (project / "flow.yaml").touch(0o644)
    used = await use(project)
    assert (used["project"], used["flow.yaml"], used["arclog.db"]) == (0o755, 0o644, 0o600)
