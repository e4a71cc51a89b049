"""What is checked before tasks of others use the folder with local files."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.sandbox.confinement_settings import data_root, for_server
from arclog.wiring.file_root import prepare_file_root


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of the user, who starts arclog in a folder in it."""
    (tmp_path / "ada" / "site").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    monkeypatch.chdir(tmp_path / "ada" / "site")
    return tmp_path / "ada"


def settings_with(root: str, **more: str) -> Settings:
    return for_server(Settings({"object.file_root": root, **{name.replace("__", "."): more[name] for name in more}}))


def test_a_server_has_no_local_files_unless_a_folder_is_named(user: Path) -> None:
    assert data_root(for_server(Settings())) is None
    assert data_root(for_server(Settings({"object.file_root": "none"}), is_own_machine=True)) is None
    assert data_root(for_server(Settings(), is_own_machine=True)) == data_root(Settings()) == str(user / "site")
    assert data_root(settings_with("~/files")) == str(user / "files")
    assert data_root(settings_with(".")) == str(user / "site")


def test_the_folder_is_created(user: Path) -> None:
    prepare_file_root(settings_with("~/a/b"))
    assert (user / "a" / "b").is_dir()
    (user / "file").write_text("")
    with pytest.raises(SettingsError, match=r"object\.file_root: cannot make the folder"):
        prepare_file_root(settings_with("~/file"))
    prepare_file_root(for_server(Settings()))


@pytest.mark.parametrize("root", [".", "..", "~"])
def test_tasks_must_not_create_the_settings_of_the_next_start(user: Path, root: str) -> None:
    place = user / "site" / "arclog.toml"
    with pytest.raises(SettingsError, match=r"object\.file_root: tasks could create .*arclog\.toml"):
        prepare_file_root(settings_with(root))
    prepare_file_root(settings_with(root, tasks__confinement="off"))
    place.write_text("")
    prepare_file_root(settings_with(root))


def test_a_home_in_the_folder_exists_before_tasks_could_create_it(user: Path) -> None:
    (user / "site" / "arclog.toml").write_text("")
    prepare_file_root(settings_with("../files"))
    assert not (user / "site" / ".arclog").exists()
    prepare_file_root(settings_with("."))
    assert (user / "site" / ".arclog").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("root", "warns"), [("~", True), ("~/..", True), ("/", True), ("~/site", False), ("~/x", False)]
)
def test_the_home_folder_of_the_user_is_warned_of(
    user: Path, caplog: pytest.LogCaptureFixture, root: str, warns: bool
) -> None:
    (user / "site" / "arclog.toml").write_text("")
    with caplog.at_level(logging.WARNING, "arclog.worker"):
        prepare_file_root(settings_with(root))
    assert (".ssh/authorized_keys" in caplog.text) == warns
