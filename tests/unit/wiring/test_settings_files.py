"""Settings whose values are in files: how secrets reach containers and services."""

from __future__ import annotations

from pathlib import Path

import pytest

from arclog.model.errors import SettingsError
from arclog.wiring.settings import load_settings


def test_a_variable_may_name_a_file_with_the_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "url").write_text("postgresql://u:s3cret@h/d\n")
    monkeypatch.setenv("ARCLOG_STORE_URL_FILE", str(tmp_path / "url"))
    assert load_settings().text("store.url") == "postgresql://u:s3cret@h/d"


def test_a_setting_that_is_itself_a_file_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ARCLOG_CLIENT_TOKEN_FILE", str(tmp_path / "token"))
    assert load_settings().text("client.token_file") == str(tmp_path / "token")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"s3cret\xff", "is not UTF-8"),
        (b"s3cret" * 20_000, "is too large"),
    ],
)
def test_what_cannot_be_a_value_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, said: str
):
    if content is not None:
        (tmp_path / "url").write_bytes(content)
    monkeypatch.setenv("ARCLOG_STORE_URL_FILE", str(tmp_path / "url"))
    with pytest.raises(SettingsError, match=said) as refused:
        load_settings()
    assert "ARCLOG_STORE_URL_FILE" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_value_and_a_file_are_one_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "url").write_text("postgresql://a/b")
    monkeypatch.setenv("ARCLOG_STORE_URL", "postgresql://c/d")
    monkeypatch.setenv("ARCLOG_STORE_URL_FILE", str(tmp_path / "url"))
    with pytest.raises(SettingsError, match="both ARCLOG_STORE_URL and ARCLOG_STORE_URL_FILE"):
        load_settings()


def test_a_file_for_a_setting_that_is_not_there_is_unknown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ARCLOG_NO_SUCH_FILE", "/x")
    with pytest.raises(SettingsError, match="is not a setting"):
        load_settings()
