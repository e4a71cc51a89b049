"""Tasks that may write around arclog's own folders and settings file do not put others in their place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.sandbox.confinement_settings import confinement_of, for_server
from arclog.tools.shell import ShellConfig, ShellTool
from tests.unit.sandbox.support import context, may_isolate


@pytest.mark.skipif(
    not may_isolate(), reason="needs a mount namespace, which alone can hide a folder in a writable one"
)
async def test_a_folder_that_contains_the_home_or_the_settings_cannot_be_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, start, home = tmp_path / "open", tmp_path / "open/app/start", tmp_path / "open/var/lib/home"
    for folder in (start, home):
        folder.mkdir(parents=True)
    (start / "arclog.toml").write_text("# ours\n")
    (home / "secrets.key").write_text("ours")
    monkeypatch.chdir(start)
    settings = for_server(Settings({"home": str(home), "tasks.allow_write": str(opened)}))
    shell = ShellTool(settings, tmp_path / "scratch")
    moves = [
        f"mv {opened}/{name} {opened}/away; mkdir -p {folder}; echo theirs > {folder}/{file}"
        for name, folder, file in (
            ("app", start, "arclog.toml"),
            ("app/start", start, "arclog.toml"),
            ("var", home, "secrets.key"),
            ("var/lib", home, "secrets.key"),
        )
    ]
    try:
        for command in (
            *moves,
            f"echo fine > {opened}/var/lib/other; mv {opened}/var/lib/other {opened}/var/lib/moved",
        ):
            await shell.run(ShellConfig(command=command, check=False), context())
    finally:
        await shell.close()
    assert (start / "arclog.toml").read_text() == "# ours\n"
    assert (home / "secrets.key").read_text() == "ours"
    assert (opened / "var/lib/moved").read_text() == "fine\n"  # beside them, tasks write as before


@pytest.mark.parametrize("setting", ["tasks.allow_write", "worker.workdir"])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_server_does_not_start_where_tasks_could_create_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, is_link: bool
) -> None:
    start = tmp_path / "open/start"
    start.mkdir(parents=True)
    monkeypatch.chdir(start)
    (tmp_path / "elsewhere").write_text("")
    if is_link:
        (start / "arclog.toml").symlink_to(tmp_path / "elsewhere")
    settings = for_server(Settings({"home": str(tmp_path / "home"), setting: str(tmp_path / "open")}))
    with pytest.raises(SettingsError, match=r"tasks could create .*arclog\.toml"):
        confinement_of(settings, tmp_path / "scratch")
    (start / "arclog.toml").unlink(missing_ok=True)
    (start / "arclog.toml").touch()
    assert confinement_of(settings, tmp_path / "scratch") is not None
    os.chdir(tmp_path)
    assert confinement_of(settings, tmp_path / "scratch") is not None
