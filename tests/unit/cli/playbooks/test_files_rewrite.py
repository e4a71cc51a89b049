"""Commands that change playbooks replace the whole file or leave it as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from arclog.cli.playbooks.files import rewrite


def test_a_file_keeps_its_content_when_the_new_one_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        rewrite(str(file), "new" * 10_000 + "\ud800")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_mode_links_and_line_ends_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "p.yaml", tmp_path / "link.yaml"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    rewrite(str(link), "new\r\n")
    assert file.read_bytes() == b"new\r\n"
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
