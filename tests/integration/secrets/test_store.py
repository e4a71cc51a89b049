"""The local store: nothing in clear, nothing changed unnoticed, nothing lost when many write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import NotFound, RequestRejected, SecretUnavailable
from arclog.secrets.store import LocalStore

SCOPE = "t/p/e"
NOW = "2026-01-01T00:00:00Z"
VALUE = "s3cret ✓ value"


def store(home: Path, **settings: object) -> LocalStore:
    return LocalStore(home, Settings({name.replace("__", "."): value for name, value in settings.items()}))


def got(kept: LocalStore, name: str, scope: str) -> str:
    """As the keychain does it, with the key that is beside the store by now."""
    sealed = kept.find(name, scope)
    assert sealed is not None
    return kept.seal.opened(sealed, str(kept.path))


def test_what_was_set_is_given_back_and_stands_nowhere_in_clear(tmp_path):
    info = store(tmp_path).put("api", SCOPE, VALUE, NOW)
    assert (info.name, info.fields) == ("api", ())
    assert got(store(tmp_path), "api", SCOPE) == VALUE
    for file in tmp_path.iterdir():
        assert b"s3cret" not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0


def test_a_second_set_replaces_the_first(tmp_path):
    store(tmp_path).put("api", SCOPE, "one1", NOW)
    store(tmp_path).put("api", SCOPE, "two2", NOW)
    assert got(store(tmp_path), "api", SCOPE) == "two2"
    assert len(store(tmp_path).infos()) == 1


def test_a_json_object_shows_its_field_names_only(tmp_path):
    store(tmp_path).put("pg", SCOPE, '{"host": "h", "password": "pw"}', NOW)
    (info,) = store(tmp_path).infos()
    assert info.fields == ("host", "password")


def test_the_narrowest_scope_wins_and_no_other_tenant_sees_anything(tmp_path):
    kept = store(tmp_path)
    kept.put("a", "t", "of the tenant", NOW)
    kept.put("a", "t/p", "of the project", NOW)
    kept.put("a", "t/p/e", "of the environment", NOW)
    assert got(kept, "a", "t/p/e") == "of the environment"
    assert got(kept, "a", "t/p/other") == "of the project"
    assert got(kept, "a", "t/other/e") == "of the tenant"
    for foreign in ("tt/p/e", "x/p/e", ""):
        assert kept.find("a", foreign) is None


def test_remove(tmp_path):
    kept = store(tmp_path)
    kept.put("a", SCOPE, VALUE, NOW)
    with pytest.raises(NotFound):
        kept.remove("a", "t/p")
    kept.remove("a", SCOPE)
    assert kept.infos() == []
    with pytest.raises(NotFound):
        kept.remove("a", SCOPE)


@pytest.mark.parametrize(
    ("name", "scope", "value"),
    [
        ("", SCOPE, "x"),
        ("a b", SCOPE, "x"),
        ("../a", SCOPE, "x"),
        ("a" * 129, SCOPE, "x"),
        ("a", "", "x"),
        ("a", "/", "x"),
        ("a", "t/p/e/x", "x"),
        ("a", SCOPE, ""),
        ("a", SCOPE, "x" * 65_537),
    ],
)
def test_what_cannot_be_kept(tmp_path, name, scope, value):
    with pytest.raises(RequestRejected):
        store(tmp_path).put(name, scope, value, NOW)
    assert store(tmp_path).infos() == []


def test_a_lost_key_is_said_and_not_replaced(tmp_path):
    store(tmp_path).put("a", SCOPE, VALUE, NOW)
    (tmp_path / "secrets.key").unlink()
    with pytest.raises(SecretUnavailable, match="their key is not at"):
        got(store(tmp_path), "a", SCOPE)
    with pytest.raises(SecretUnavailable, match="restore it"):
        store(tmp_path).put("b", SCOPE, VALUE, NOW)
    assert not (tmp_path / "secrets.key").exists()


def test_another_key_is_told_from_damage(tmp_path):
    store(tmp_path / "one").put("a", SCOPE, VALUE, NOW)
    store(tmp_path / "two").put("a", SCOPE, VALUE, NOW)
    (tmp_path / "two/secrets.key").replace(tmp_path / "one/secrets.key")
    with pytest.raises(SecretUnavailable, match="another key"):
        got(store(tmp_path / "one"), "a", SCOPE)
    with pytest.raises(SecretUnavailable, match="another key"):
        store(tmp_path / "one").put("b", SCOPE, VALUE, NOW)


def test_a_key_that_others_can_read_is_refused(tmp_path):
    store(tmp_path).put("a", SCOPE, VALUE, NOW)
    (tmp_path / "secrets.key").chmod(0o640)
    with pytest.raises(SecretUnavailable, match=r"can be read by others.*chmod 600"):
        got(store(tmp_path), "a", SCOPE)


def test_a_key_that_somebody_else_gives_us_has_the_rights_that_it_takes(tmp_path, monkeypatch):
    """As a mounted secret of Kubernetes has: root's, and readable by our group."""
    store(tmp_path).put("a", SCOPE, VALUE, NOW)
    (tmp_path / "secrets.key").chmod(0o440)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert got(store(tmp_path), "a", SCOPE) == VALUE


@pytest.mark.parametrize("body", [b"", b"not base64!", b"c2hvcnQ="])
def test_a_file_that_holds_no_key(tmp_path, body):
    store(tmp_path).put("a", SCOPE, VALUE, NOW)
    (tmp_path / "secrets.key").write_bytes(body)
    with pytest.raises(SecretUnavailable, match="does not contain a key"):
        got(store(tmp_path), "a", SCOPE)


@pytest.mark.parametrize("length", [0, 1, 40, -2])
def test_a_store_that_is_cut_is_damaged_and_is_not_written_over(tmp_path, length):
    kept = store(tmp_path)
    kept.put("a", SCOPE, VALUE, NOW)
    body = kept.path.read_bytes()[:length]
    kept.path.write_bytes(body)
    for work in (lambda: got(kept, "a", SCOPE), lambda: kept.put("b", SCOPE, VALUE, NOW), kept.infos):
        with pytest.raises(SecretUnavailable, match="is damaged"):
            work()
    assert kept.path.read_bytes() == body


def _changed(body: dict, how: str) -> None:
    first, second = body["secrets"]
    if how == "data":
        first["data"] = ("A" if first["data"][0] != "A" else "B") + first["data"][1:]
    elif how == "swapped":
        for part in ("nonce", "data"):
            first[part], second[part] = second[part], first[part]
    else:
        first["info"][how] = {"name": "c", "scope": "other/p/e", "fields": ["x"], "set_at": "2027"}[how]


@pytest.mark.parametrize("how", ["data", "swapped", "name", "scope", "fields", "set_at"])
def test_nothing_can_be_changed_unnoticed(tmp_path, how):
    kept = store(tmp_path)
    kept.put("a", SCOPE, VALUE, NOW)
    kept.put("b", SCOPE, "another secret", NOW)
    body = json.loads(kept.path.read_bytes())
    _changed(body, how)
    kept.path.write_text(json.dumps(body))
    name, scope = body["secrets"][0]["info"]["name"], body["secrets"][0]["info"]["scope"]
    with pytest.raises(SecretUnavailable, match="was changed or damaged"):
        got(kept, name, scope)


def test_the_key_may_be_elsewhere(tmp_path):
    key = tmp_path / "elsewhere/the.key"
    store(tmp_path / "home", secrets__key_file=str(key)).put("a", SCOPE, VALUE, NOW)
    assert key.exists()
    assert not (tmp_path / "home/secrets.key").exists()
    assert got(store(tmp_path / "home", secrets__key_file=str(key)), "a", SCOPE) == VALUE


def test_a_keyring_that_is_not_installed_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(SecretUnavailable, match="pip install keyring"):
        store(tmp_path, secrets__key_source="keyring").put("a", SCOPE, VALUE, NOW)


def test_the_key_in_a_keyring(tmp_path, monkeypatch):
    """With a module of keyring's own two functions; the package's backends need a desktop session."""
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "keyring.py").write_text(
        "kept = {}\ndef get_password(s, a): return kept.get((s, a))\ndef set_password(s, a, p): kept[s, a] = p\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "keyring", raising=False)
    home = tmp_path / "home"
    store(home, secrets__key_source="keyring").put("a", SCOPE, VALUE, NOW)
    assert got(store(home, secrets__key_source="keyring"), "a", SCOPE) == VALUE
    assert not (home / "secrets.key").exists()
    monkeypatch.delitem(sys.modules, "keyring")


def test_a_home_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "home").write_text("a file")
    with pytest.raises(SecretUnavailable, match="cannot be written"):
        store(tmp_path / "home").put("a", SCOPE, VALUE, NOW)


def test_many_processes_set_at_once_and_none_is_lost(tmp_path):
    """The first of them makes the key."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom arclog.model.config.settings import Settings\n"
        "from arclog.secrets.store import LocalStore\n"
        "store = LocalStore(Path(sys.argv[1]), Settings())\nsys.stdin.read()\n"
        f"for n in range(5): store.put(f'{{sys.argv[2]}}_{{n}}', '{SCOPE}', sys.argv[2] * 9, '{NOW}')\n"
    )
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), f"p{n}"], stdin=subprocess.PIPE, env={**os.environ}
        )
        for n in range(8)
    ]
    for process in crowd:
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait(60) for process in crowd] == [0] * 8
    kept = store(tmp_path)
    assert len(kept.infos()) == 40
    assert {got(kept, f"p{n}_4", SCOPE) for n in range(8)} == {f"p{n}" * 9 for n in range(8)}
    assert {file.name for file in tmp_path.iterdir()} == {"secrets.json", "secrets.key", "secrets.lock"}
