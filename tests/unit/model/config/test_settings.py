"""Settings: one table, strict names, values checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from arclog.model.config import settings as settings_module
from arclog.model.config.settings import TABLE, Settings
from arclog.model.errors import SettingsError
from arclog.playbook.schema import LIMITS
from arclog.wiring.settings import load_settings


def test_every_row_has_a_help_a_unit_and_a_default_within_its_own_range() -> None:
    for row in TABLE:
        assert row.help.endswith(".")
        assert row.unit
        assert Settings({row.name: row.default})[row.name] == row.default


def test_every_setting_stands_in_the_table_once() -> None:
    names = [row.name for row in TABLE]
    assert sorted(names) == sorted(set(names))


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match=r"did you mean leases\.seconds"):
        Settings({"lease.seconds": 3})


@pytest.mark.parametrize("raw", ["x", "", None, [], True, "-1", 0])
def test_a_misfit_value_is_refused(raw: object) -> None:
    with pytest.raises(SettingsError, match="ARCLOG_WORKER_SLOTS"):
        Settings({"worker.slots": raw})


def test_later_sources_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arclog.toml").write_text("[worker]\nslots = 2\n[leases]\nseconds = 7\n[tasks]\ntimeout_s = 5\n")
    monkeypatch.setenv("ARCLOG_LEASES_SECONDS", "8")
    monkeypatch.setenv("ARCLOG_TASKS_TIMEOUT_S", "6")
    result = load_settings({"tasks.timeout_s": 9})
    assert (result["worker.slots"], result["leases.seconds"], result["tasks.timeout_s"]) == (2, 8.0, 9.0)


def test_a_misspelt_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARCLOG_LEASE_SECONDS", "8")
    with pytest.raises(SettingsError, match="ARCLOG_LEASE_SECONDS"):
        load_settings()


def test_a_broken_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arclog.toml").write_text("worker = [")
    with pytest.raises(SettingsError, match=r"arclog\.toml"):
        load_settings()


def test_a_file_that_is_hidden_from_a_task_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arclog.toml").write_text("[worker]\nslots = 2\n")

    def refused(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(SettingsError, match=r"arclog\.toml.*Permission denied"):
        load_settings()
    monkeypatch.setenv("ARCLOG_EXECUTION_ID", "1")
    assert load_settings()["worker.slots"] == Settings()["worker.slots"]


def test_every_setting_is_read_somewhere() -> None:
    package = Path(settings_module.__file__).parents[2]
    code = "".join(file.read_text() for file in package.rglob("*.py") if file != Path(settings_module.__file__))
    ceilings = {f"limits.{field.name}" for field in LIMITS.fields or ()}
    assert [row.name for row in TABLE if f'"{row.name}"' not in code and row.name not in ceilings] == []
