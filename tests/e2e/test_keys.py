"""`arclog key` and `arclog audit` as people meet them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.servers.commands import run_text

PATIENCE_S = 60
KEY = re.compile(r"ark_([0-9a-z]{16})_[0-9A-Za-z]{43}\n")


@pytest.fixture(autouse=True)
def _where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARCLOG_HOME", "home")


def arclog(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_text(*words, timeout=PATIENCE_S)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_a_key_is_shown_once_listed_and_revoked() -> None:
    made = arclog("key", "create", "--name", "ci", "--role", "operator", "--expires", "90d", "--tenant", "acme")
    form = KEY.fullmatch(made.stdout)
    assert form is not None
    assert "is not shown again" in made.stderr
    assert "requires a key from every caller" in made.stderr
    key_id, secret = form[1], made.stdout.strip()[-43:]
    listed = arclog("key", "list")
    assert f"{key_id}  ci  operator  acme  expires 20" in listed.stdout
    (body,) = json.loads(arclog("key", "list", "--json").stdout)
    assert (body["key_id"], body["tenant"], body["roles"], body["revoked_at"]) == (key_id, "acme", ["operator"], None)
    assert "hash" not in body
    assert secret.encode() not in b"".join(file.read_bytes() for file in Path("home").rglob("*") if file.is_file())
    assert arclog("key", "list", "--tenant", "other").stdout.startswith("no keys")
    assert "apply this within 10 s" in arclog("key", "revoke", made.stdout.strip()).stdout
    assert "is already revoked" in arclog("key", "revoke", key_id).stdout
    assert "revoked 20" in arclog("key", "list").stdout
    assert "no requests recorded" in arclog("audit").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("key", "create"), "--name and --role are required"),
        (("key", "create", "--name", "x", "--role", "boss"), "invalid choice: 'boss'"),
        (("key", "create", "--name", "x", "--role", "admin", "--expires", "soon"), "is not a duration"),
        (("key", "create", "--name", "x", "--role", "admin", "--tenant", "a/b"), "name of a tenant"),
        (("key", "create", "--name", "", "--role", "admin"), "--name and --role are required"),
        (("key", "create", "ID", "--name", "x", "--role", "admin"), "does not take an id"),
        (("key", "list", "--role", "admin"), "is an option of `key create`"),
        (("key", "list"), "there is nothing in home yet"),
        (("key", "revoke"), "an ID is required"),
        (("key", "revoke", "x"), "there is nothing in home yet"),
        (("audit",), "there is nothing in home yet"),
        (("audit", "--limit", "0"), "--limit is between"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], message: str) -> None:
    done = arclog(*words, code=2)
    assert message in done.stderr
    assert done.stdout == ""
