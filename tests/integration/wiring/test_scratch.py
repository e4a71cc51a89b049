"""Scratch folders: whose process is gone is removed, a living one's never."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from arclog.wiring.homes.folders import Scratch, remove_abandoned

OWNER = (
    "import sys\nfrom pathlib import Path\nfrom arclog.wiring.homes.folders import Scratch\n"
    "scratch = Scratch(Path(sys.argv[1]))\n(scratch.folder / 'deep').mkdir()\n(scratch.folder / 'deep' / 'x').touch()\n"
    "print(scratch.folder, flush=True)\nsys.stdin.read()\n"
)


def test_a_folder_is_there_until_it_is_removed(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    (scratch.folder / "file").touch()
    assert scratch.folder.stat().st_mode & 0o777 == 0o700
    assert not scratch.has_others()
    assert remove_abandoned(tmp_path) == 0  # ours, and we live
    other = Scratch(tmp_path)
    assert scratch.has_others()
    other.remove()
    scratch.remove()
    assert list(tmp_path.iterdir()) == []
    scratch.remove()


def test_of_a_killed_process_it_is_removed_and_of_a_living_one_not(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert remove_abandoned(tmp_path) == 0
        assert (folder / "deep" / "x").exists()
        process.kill()
        process.wait()
    assert (folder / "deep" / "x").exists()
    assert remove_abandoned(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "file").touch()
    (tmp_path / "arclog-scratch-link").symlink_to(other)
    (tmp_path / "arclog-scratch-file").touch()
    (tmp_path / "arclog-abcd1234").mkdir()
    (tmp_path / ".arclog-scratch-new").mkdir()  # somebody is about to lock it
    assert remove_abandoned(tmp_path) == 0
    assert len(list(tmp_path.iterdir())) == 5
    assert (other / "file").exists()
