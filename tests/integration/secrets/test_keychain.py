"""Keychain entries, resolved: every kind, what it gives, what it hides, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable, StoreUnavailable
from arclog.ports.secrets import SealedSecret
from arclog.secrets.keychain import LocalSecrets
from arclog.secrets.store import HomeVault, LocalStore
from tests.integration.secrets.server import TokenServer, token_server

SCOPE = "t/p/e"
SECRET = "cl1ent secret/+%"


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> int:
        return int(self.at * 1e6)

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def made(home: Path, clock: Clock | None = None, **settings: Any) -> LocalSecrets:
    values = {"http.allow_networks": "loopback"}
    values |= {name.replace("__", "."): value for name, value in settings.items()}
    store = LocalStore(home, Settings(values))
    return LocalSecrets((HomeVault(store),), store.seal, Settings(values), clock or Clock())


def keep(home: Path, name: str, value: Any, scope: str = SCOPE) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    LocalStore(home, Settings()).put(name, scope, text, "2026-01-01T00:00:00Z")


class Elsewhere:
    """A place that answers, or does not, as it is told."""

    place = "the other place"

    def __init__(self, answer: SealedSecret | Exception) -> None:
        self._answer = answer

    async def find(self, name: str, scope: str) -> SealedSecret | None:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def refusal(secrets: LocalSecrets, entry: dict[str, Any]) -> SecretUnavailable:
    """What `resolve` and `check` say, which is the same."""
    with pytest.raises(SecretUnavailable) as caught:
        await secrets.resolve(entry, SCOPE)
    assert str(caught.value).startswith(f"keychain entry {entry['name']} (kind {entry['kind']}): ")
    assert await secrets.check([entry], SCOPE) == [str(caught.value)]
    return caught.value


async def test_env(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "value-1")
    secrets = made(tmp_path)
    entry = {"name": "MY_KEY", "kind": "env"}
    resolved = await secrets.resolve(entry, SCOPE)
    assert (resolved.fields, resolved.secrets) == ({"value": "value-1"}, ("value-1",))
    assert "value-1" not in repr(resolved)
    # Rotated: the next attempt has the new one.
    monkeypatch.setenv("MY_KEY", "value-2")
    assert (await secrets.resolve(entry, SCOPE)).fields["value"] == "value-2"
    other = await secrets.resolve({"name": "x", "kind": "env", "var": "MY_KEY"}, SCOPE)
    assert other.fields["value"] == "value-2"


@pytest.mark.parametrize(
    ("value", "message"),
    [(None, "is not set"), ("", "is empty"), ("x" * 70_000, "secrets.max_bytes"), ("\udcff", "UTF-8")],
)
async def test_env_that_cannot_be_had(tmp_path, monkeypatch, value, message):
    monkeypatch.delenv("MY_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    assert message in str(await refusal(made(tmp_path), {"name": "a", "kind": "env", "var": "MY_KEY"}))


async def test_file_as_text_and_as_json(tmp_path):
    path = tmp_path / "secret"
    path.write_text('{"a": "text one", "n": 12345678, "port": 5432}\n')
    text = await made(tmp_path).resolve({"name": "f", "kind": "file", "path": str(path)}, SCOPE)
    assert text.fields == {"value": '{"a": "text one", "n": 12345678, "port": 5432}'}
    fields = await made(tmp_path).resolve({"name": "f", "kind": "file", "path": str(path), "format": "json"}, SCOPE)
    assert fields.fields == {"a": "text one", "n": 12345678, "port": 5432}
    assert set(fields.secrets) == {text.fields["value"], "text one", "12345678"}


async def test_files_that_cannot_be_had(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    secrets = made(tmp_path)

    async def message(path: Path | str, **more: str) -> str:
        return str(await refusal(secrets, {"name": "f", "kind": "file", "path": str(path), **more}))

    assert f"there is no file nowhere in {tmp_path}" in await message("nowhere")
    assert "not a regular file" in await message(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in await message(tmp_path / "pipe")
    (tmp_path / "empty").write_text("\n")
    assert "is empty" in await message(tmp_path / "empty")
    (tmp_path / "large").write_text("x" * 70_000)
    assert "larger than 65536 bytes" in await message(tmp_path / "large")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in await message(tmp_path / "binary")
    (tmp_path / "text").write_text("hunter2hunter2")
    assert "not a JSON object" in (text := await message(tmp_path / "text", format="json"))
    assert "hunter2" not in text
    if os.geteuid() != 0:
        (tmp_path / "text").chmod(0)
        assert "Permission denied" in await message(tmp_path / "text")


async def test_secret_and_secret_manager_by_their_own_name_or_another(tmp_path):
    keep(tmp_path, "plain", "value-1")
    keep(tmp_path, "fields", {"user": "ada", "deep": [{"pw": "pass word"}], "on": True})
    secrets = made(tmp_path)
    for kind in ("secret", "secret_manager"):
        assert (await secrets.resolve({"name": "plain", "kind": kind}, SCOPE)).fields == {"value": "value-1"}
        resolved = await secrets.resolve({"name": "x", "kind": kind, "secret": "fields"}, SCOPE)
        assert resolved.fields["user"] == "ada"
        assert {"ada", "pass word"} < set(resolved.secrets)
        assert "arclog secret set nope" in str(await refusal(secrets, {"name": "nope", "kind": kind}))
    # Rotated between two attempts.
    keep(tmp_path, "plain", "value-2")
    assert (await secrets.resolve({"name": "plain", "kind": "secret"}, SCOPE)).fields == {"value": "value-2"}


async def test_bearer(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", '{"deep": "tok-123"}')
    entry = {"name": "b", "kind": "bearer", "token": {"env": "TOKEN", "key": "deep"}}
    resolved = await made(tmp_path).resolve(entry, SCOPE)
    assert resolved.fields == {"token": "tok-123", "value": "tok-123", "header": "Bearer tok-123"}
    keep(tmp_path, "b", "tok-of-store")
    assert (await made(tmp_path).resolve({"name": "b", "kind": "bearer"}, SCOPE)).fields["token"] == "tok-of-store"
    entry["token"] = {"env": "TOKEN", "key": "other"}
    assert "no field 'other'" in str(await refusal(made(tmp_path), entry))


async def test_basic(tmp_path, monkeypatch):
    monkeypatch.setenv("PW", "pass word")
    resolved = await made(tmp_path).resolve(
        {"name": "b", "kind": "basic", "username": "ada", "password": {"env": "PW"}}, SCOPE
    )
    assert (resolved.fields, resolved.secrets) == ({"username": "ada", "password": "pass word"}, ("pass word",))
    keep(tmp_path, "b", {"username": "ada", "password": "other word"})
    assert (await made(tmp_path).resolve({"name": "b", "kind": "basic"}, SCOPE)).fields["password"] == "other word"
    keep(tmp_path, "b", {"username": "ada"})
    assert "it lacks password" in str(await refusal(made(tmp_path), {"name": "b", "kind": "basic"}))
    assert "or neither" in str(await refusal(made(tmp_path), {"name": "b", "kind": "basic", "username": "ada"}))


@pytest.mark.parametrize(
    "kept",
    [
        '{"host": "h", "port": 5433, "user": "u", "password": "p@ss word", "dbname": "d", "sslmode": "require"}',
        '{"db_host": "h", "db_port": 5433, "username": "u", "db_password": "p@ss word", "database": "d", "sslmode": "require"}',
        '{"dsn": "postgres://u:p%40ss%20word@h:5433/d?sslmode=require"}',
        "postgresql://u:p%40ss%20word@h:5433/d?sslmode=require",
        "host=h port=5433 user=u password='p@ss word' dbname=d  sslmode = require ",
    ],
)
async def test_postgres_credential_in_every_form(tmp_path, kept):
    keep(tmp_path, "pg", kept)
    resolved = await made(tmp_path).resolve({"name": "pg", "kind": "postgres_credential"}, SCOPE)
    fields = {key: str(value) for key, value in resolved.fields.items() if key != "dsn"}
    assert fields == {
        "host": "h",
        "port": "5433",
        "user": "u",
        "password": "p@ss word",
        "dbname": "d",
        "sslmode": "require",
    }
    assert "p@ss word" in resolved.secrets
    assert not {"h", "u", "d"} & set(resolved.secrets)


async def test_postgres_credential_in_parts(tmp_path, monkeypatch):
    monkeypatch.setenv("PW", "pass word")
    entry = {"name": "pg", "kind": "postgres_credential", "host": "h", "dbname": "d", "password": {"env": "PW"}}
    resolved = await made(tmp_path).resolve(entry, SCOPE)
    assert (resolved.fields, resolved.secrets) == (
        {"host": "h", "dbname": "d", "password": "pass word"},
        ("pass word",),
    )
    monkeypatch.setenv("PW", "no credential at all")
    problem = await refusal(made(tmp_path), {"name": "pg", "kind": "postgres_credential", "source": {"env": "PW"}})
    assert "neither a JSON object" in str(problem)


# --- oauth2 -------------------------------------------------------------------------------------------------------


def grant(server: TokenServer, **more: Any) -> dict[str, Any]:
    entry = {
        "name": "crm",
        "kind": "oauth2",
        "token_url": server.url,
        "client_id": "me:1",
        "client_secret": {"env": "CS"},
    }
    return {**entry, **more}


def token(text: str, **more: Any) -> tuple[int, bytes]:
    return 200, json.dumps({"access_token": text, "token_type": "bearer", **more}).encode()


@pytest.fixture
def _client_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CS", SECRET)


@pytest.mark.usefixtures("_client_secret")
async def test_a_token_is_fetched_once_for_all_who_wait_and_again_before_it_ends(tmp_path):
    clock = Clock()
    secrets = made(tmp_path, clock)
    async with token_server() as server:
        server.answer = token("tok-1", expires_in=600)
        server.go.clear()
        waiting = [asyncio.create_task(secrets.resolve(grant(server), SCOPE)) for _ in range(20)]
        await server.came.wait()
        server.go.set()
        results = await asyncio.gather(*waiting)
        assert {resolved.fields["header"] for resolved in results} == {"Bearer tok-1"}
        assert set(results[0].secrets) == {"tok-1", SECRET}
        assert len(server.requests) == 1
        server.answer = token("tok-2", expires_in=600)
        clock.at += 539  # a minute before its end
        assert (await secrets.resolve(grant(server), SCOPE)).fields["token"] == "tok-1"
        clock.at += 1
        assert (await secrets.resolve(grant(server), SCOPE)).fields["token"] == "tok-2"
        await secrets.refused(grant(server), SCOPE)
        server.answer = token("tok-3", expires_in=600)
        assert (await secrets.resolve(grant(server), SCOPE)).fields["token"] == "tok-3"


@pytest.mark.usefixtures("_client_secret")
@pytest.mark.parametrize("setting", ["secrets__allow_networks", "http__allow_networks"])
async def test_a_token_server_that_must_not_be_reached(tmp_path, setting):
    closed: dict[str, Any] = {setting: "none"}
    async with token_server() as server:
        server.answer = token("tok-1")
        with pytest.raises(SecretUnavailable, match=r"secrets\.allow_networks") as refused:
            await made(tmp_path, **closed).resolve(grant(server), SCOPE)
        assert server.requests == []
    assert not refused.value.retryable


@pytest.mark.usefixtures("_client_secret")
async def test_a_token_server_that_redirects(tmp_path):
    """A secret goes to the address that was given, and to no other."""
    async with token_server() as server, token_server() as other:
        server.answer = (307, b"")
        server.location = other.url
        other.answer = token("tok-1")
        with pytest.raises(SecretUnavailable, match="307"):
            await made(tmp_path).resolve(grant(server), SCOPE)
        assert other.requests == []


@pytest.mark.usefixtures("_client_secret")
async def test_what_the_server_is_sent(tmp_path):
    async with token_server() as server:
        server.answer = token("tok-1")
        await made(tmp_path).resolve(grant(server, scope="read write", audience="https://api"), SCOPE)
        await made(tmp_path).resolve(grant(server, client_auth="post"), SCOPE)
        basic, post = server.requests
    words = base64.b64encode(b"me%3A1:cl1ent+secret%2F%2B%25")
    assert b"Basic " + words in basic
    assert basic.endswith(b"grant_type=client_credentials&scope=read+write&audience=https%3A%2F%2Fapi")
    assert b"uthorization" not in post
    assert b"client_id=me%3A1&client_secret=cl1ent" in post


async def test_a_rotated_client_secret_asks_anew(tmp_path, monkeypatch):
    secrets = made(tmp_path)
    async with token_server() as server:
        server.answer = token("tok-1", expires_in=600)
        for value in ("one-secret", "two-secret"):
            monkeypatch.setenv("CS", value)
            await secrets.resolve(grant(server), SCOPE)
        assert len(server.requests) == 2


@pytest.mark.usefixtures("_client_secret")
@pytest.mark.parametrize(
    ("answer", "message", "retryable"),
    [
        ((401, b'{"error": "invalid_client"}'), "answered 401: invalid_client; check client_id", False),
        ((400, json.dumps({"error": SECRET}).encode()), "answered 400; check client_id", False),
        ((500, b"oops " + SECRET.encode()), "answered 500", True),
        ((429, b""), "answered 429", True),
        ((302, b""), "answered 302", False),
        ((200, b"<html>" + SECRET.encode()), "without an access_token", False),
        ((200, b'{"access_token": 7}'), "without an access_token", False),
        ((200, b"[" * 70_000), "more than 65536 bytes", False),
    ],
)
async def test_a_server_that_gives_no_token(tmp_path, answer, message, retryable):
    async with token_server() as server:
        server.answer = answer
        with pytest.raises(SecretUnavailable) as caught:
            await made(tmp_path).resolve(grant(server), SCOPE)
    assert message in str(caught.value)
    assert "cl1ent" not in str(caught.value)
    assert caught.value.retryable is retryable


@pytest.mark.usefixtures("_client_secret")
async def test_a_server_that_is_slow_or_gone(tmp_path):
    async with token_server() as server:
        server.go.clear()
        with pytest.raises(SecretUnavailable, match=r"within 0.2 s \(secrets.token_timeout_s\)") as caught:
            await made(tmp_path, secrets__token_timeout_s=0.2).resolve(grant(server), SCOPE)
        assert caught.value.retryable
    with pytest.raises(SecretUnavailable, match="cannot be reached") as caught:
        await made(tmp_path).resolve(grant(server), SCOPE)
    assert caught.value.retryable


@pytest.mark.usefixtures("_client_secret")
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.com/t", "sent unencrypted"),
        ("ftp://127.0.0.1/t", "https"),
        ("https://u:p@example.com/t", "must not contain"),
        ("nonsense", "https"),
        ("http://[/t", "not a URL"),
        ("http://127.0.0.1.example.com/t", "sent unencrypted"),
    ],
)
async def test_token_urls_that_are_refused(tmp_path, url, message):
    entry = {"name": "crm", "kind": "oauth2", "token_url": url, "client_id": "me", "client_secret": {"env": "CS"}}
    assert message in str(await refusal(made(tmp_path), entry))


async def test_a_grant_in_the_local_store(tmp_path):
    async with token_server() as server:
        server.answer = token("tok-1")
        keep(tmp_path, "crm", {"token_url": server.url, "client_id": "me", "client_secret": SECRET, "scope": "read"})
        secrets = made(tmp_path)
        assert await secrets.check([{"name": "crm", "kind": "oauth2"}], SCOPE) == []
        assert server.requests == []
        resolved = await secrets.resolve({"name": "crm", "kind": "oauth2"}, SCOPE)
        assert resolved.fields["token"] == "tok-1"
        assert b"scope=read" in server.requests[0]
    assert "it lacks client_id" in str(
        await refusal(
            made(tmp_path), {"name": "x", "kind": "oauth2", "token_url": "https://x/", "client_secret": {"env": "X"}}
        )
    )


async def test_a_store_that_is_away_fails_an_attempt_that_may_be_repeated_and_no_run(tmp_path):
    kept = LocalStore(tmp_path, Settings())
    away = Elsewhere(StoreUnavailable("the store is away"))
    secrets = LocalSecrets((away,), kept.seal, Settings(), Clock())
    entry = {"name": "a", "kind": "secret"}
    with pytest.raises(SecretUnavailable, match=r"keychain entry a .*the store is away") as caught:
        await secrets.resolve(entry, SCOPE)
    assert caught.value.retryable
    with pytest.raises(StoreUnavailable):  # whoever asks for a run hears that it cannot be started now
        await secrets.check([entry], SCOPE)


@pytest.mark.parametrize(("name", "scope"), [("b", SCOPE), ("a", "other/p/e"), ("a", f"{SCOPE}x")])
async def test_another_secret_than_the_one_asked_for_is_not_opened(tmp_path, name, scope):
    keep(tmp_path, name, "not for you", scope)
    kept = LocalStore(tmp_path, Settings())
    wrong = kept.find(name, scope)
    assert wrong is not None
    secrets = LocalSecrets((Elsewhere(wrong),), kept.seal, Settings(), Clock())
    with pytest.raises(SecretUnavailable, match="gave another secret than a"):
        await secrets.resolve({"name": "a", "kind": "secret"}, SCOPE)


async def test_what_is_arclogs_own_is_no_secret_of_a_playbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    keep(home, "a", "b")
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("ARCLOG_STORE_URL", "postgresql://u:p@host/db")
    store, settings = LocalStore(home, Settings()), Settings({"home": str(home)})
    secrets = LocalSecrets((HomeVault(store),), store.seal, settings, Clock())
    for path in ("home/secrets.key", "link/secrets.key", "away/../home/secrets.key"):
        problem = await refusal(secrets, {"name": "a", "kind": "file", "path": str(tmp_path / path)})
        assert "arclog's own" in str(problem)
    for path in ("/proc/self/environ", f"/proc/self/root{home}/secrets.key"):
        assert "playbooks cannot read it" in str(await refusal(secrets, {"name": "a", "kind": "file", "path": path}))
    assert "arclog's own" in str(await refusal(secrets, {"name": "a", "kind": "env", "var": "ARCLOG_STORE_URL"}))
    nested = {"name": "a", "kind": "bearer", "token": {"env": "ARCLOG_STORE_URL"}}
    assert "arclog's own" in str(await refusal(secrets, nested))


async def test_the_operator_says_which_variables_and_files_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CRM_KEY", "DATABASE_KEY"):
        monkeypatch.setenv(name, "a secret")
    (tmp_path / "open").mkdir()
    for path in ("open/a", "closed"):
        (tmp_path / path).write_text("a secret")
    secrets = made(tmp_path / "home", secrets__allow_env="CRM_*, OTHER", secrets__allow_files=str(tmp_path / "open"))
    for entry in ({"kind": "env", "var": "CRM_KEY"}, {"kind": "file", "path": str(tmp_path / "open" / "a")}):
        assert (await secrets.resolve({"name": "a", **entry}, SCOPE)).fields == {"value": "a secret"}
    for entry, setting in (
        ({"kind": "env", "var": "DATABASE_KEY"}, "secrets.allow_env"),
        ({"kind": "file", "path": str(tmp_path / "closed")}, "secrets.allow_files"),
    ):
        assert setting in str(await refusal(secrets, {"name": "a", **entry}))


#: What makes a variable, or the file that it names, arclog's own.
OWN_VARIABLES = [
    ({"secrets__manager": "vault"}, "VAULT_TOKEN"),
    ({"secrets__manager": "aws"}, "AWS_SECRET_ACCESS_KEY"),
    ({"secrets__manager": "google"}, "GOOGLE_BEARER_TOKEN"),
    ({"secrets__manager": "azure"}, "AZURE_CLIENT_SECRET"),
    ({"results__url": "s3://bucket/a"}, "AWS_SESSION_TOKEN"),
    ({"results__url": "gs://bucket/a"}, "GOOGLE_SERVICE_ACCOUNT_KEY"),
    ({"results__url": "az://bucket/a"}, "AZURE_STORAGE_ACCOUNT_KEY"),
    ({"results__url": "az://bucket/a"}, "IDENTITY_HEADER"),
    ({"results__url": "postgresql://host/results"}, "PGPASSWORD"),
    ({"store__url": "postgresql://host/log"}, "PGPASSWORD"),
    ({"store__listen_url": "postgres://host/log"}, "PGUSER"),
]
OWN_FILES = [
    ({"secrets__manager": "aws"}, "AWS_WEB_IDENTITY_TOKEN_FILE"),
    ({"secrets__manager": "google"}, "GOOGLE_APPLICATION_CREDENTIALS"),
    ({"secrets__manager": "azure"}, "AZURE_FEDERATED_TOKEN_FILE"),
    ({"results__url": "s3://bucket/a"}, "AWS_SHARED_CREDENTIALS_FILE"),
    ({"results__url": "gs://bucket/a"}, "GOOGLE_SERVICE_ACCOUNT"),
    ({"store__url": "postgresql://host/log"}, "PGPASSFILE"),
]


@pytest.mark.parametrize(("settings", "variable"), OWN_VARIABLES)
async def test_a_variable_with_which_arclog_logs_in_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], variable: str
) -> None:
    monkeypatch.setenv(variable, "a secret")
    entry = {"name": "a", "kind": "env", "var": variable}
    assert (await made(tmp_path).resolve(entry, SCOPE)).fields == {"value": "a secret"}
    secrets = made(tmp_path, **settings, secrets__allow_env=variable)
    assert f"{variable} is arclog's own" in str(await refusal(secrets, entry))
    nested = {"name": "a", "kind": "bearer", "token": {"env": variable}}
    assert f"{variable} is arclog's own" in str(await refusal(secrets, nested))


@pytest.mark.parametrize(("settings", "variable"), OWN_FILES)
async def test_a_file_that_such_a_variable_names_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], variable: str
) -> None:
    (tmp_path / "file").write_text("a secret")
    monkeypatch.setenv(variable, str(tmp_path / "file"))
    entry = {"name": "a", "kind": "file", "path": str(tmp_path / "file")}
    assert (await made(tmp_path / "home").resolve(entry, SCOPE)).fields == {"value": "a secret"}
    secrets = made(tmp_path / "home", **settings, secrets__allow_files=str(tmp_path))
    assert "arclog's own" in str(await refusal(secrets, entry))


#: What makes a file arclog's own that no variable names.
OWN_DEFAULTS = [
    ({"store__url": "postgresql://host/log"}, ".pgpass"),
    ({"store__url": "postgresql://host/log"}, ".pg_service.conf"),
    ({"results__url": "postgres://host/results"}, ".postgresql/postgresql.key"),
    ({"results__url": "gs://bucket/a"}, ".config/gcloud/application_default_credentials.json"),
    ({"store__url": "postgresql://host/log?passfile={path}"}, "named"),
    ({"store__listen_url": "postgresql://host/log?sslkey={path}"}, "named"),
    ({"results__url": "gs://bucket/a", "results__credentials_file": "{credentials}"}, "named"),
]


@pytest.mark.parametrize(("settings", "name"), OWN_DEFAULTS)
async def test_a_file_with_which_arclog_logs_in_without_a_variable_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], name: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path, credentials = tmp_path / name, tmp_path / "credentials"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a secret")
    credentials.write_text(f"# the key\nGOOGLE_SERVICE_ACCOUNT = {path}\n")
    entry = {"name": "a", "kind": "file", "path": f"~/{name}"}
    assert (await made(tmp_path / "home").resolve(entry, SCOPE)).fields == {"value": "a secret"}
    named = {key: value.format(path=path, credentials=credentials) for key, value in settings.items()}
    assert "arclog's own" in str(await refusal(made(tmp_path / "home", **named), entry))


async def test_a_folder_that_becomes_a_link_after_its_check_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, text in (("home", "arclog's key"), ("open/data", "a secret")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "key").write_text(text)
    data, realpath = tmp_path / "open" / "data", os.path.realpath

    def swapped(path: Any, **more: Any) -> Any:
        real = realpath(path, **more)
        if str(path) == str(data / "key") and not data.is_symlink():
            data.rename(tmp_path / "moved")
            data.symlink_to(tmp_path / "home")
        return real

    secrets = made(tmp_path / "home", secrets__allow_files=str(tmp_path / "open"))
    entry = {"name": "a", "kind": "file", "path": str(data / "key")}
    assert (await secrets.resolve(entry, SCOPE)).fields == {"value": "a secret"}
    monkeypatch.setattr(os.path, "realpath", swapped)
    assert "secrets.allow_files" in str(await refusal(secrets, entry))


@pytest.mark.parametrize("variable", ["PGP_KEY", "PG_PASSWORD", "GOOGLE_API_KEY", "AWSOME", "VAULTED"])
async def test_other_variables_stay_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "a secret")
    secrets = made(tmp_path, store__url="postgresql://host/log", secrets__manager="vault", results__url="s3://bucket/a")
    assert (await secrets.resolve({"name": "a", "kind": "env", "var": variable}, SCOPE)).fields == {"value": "a secret"}


async def test_the_settings_file_is_arclogs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "arclog.toml").write_text("[smtp]\nuser = 'ada'\n")
    monkeypatch.chdir(tmp_path)
    secrets = made(tmp_path / "home")
    for path in ("arclog.toml", str(tmp_path / "arclog.toml")):
        assert "arclog's own" in str(await refusal(secrets, {"name": "a", "kind": "file", "path": path}))
