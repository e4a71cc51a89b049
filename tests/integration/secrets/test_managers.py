"""Secret managers, each against a server that speaks its protocol: what is read, who may, what failures are called, and that
no message holds a secret.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable, SettingsError
from arclog.secrets.keychain import LocalSecrets
from arclog.secrets.managers.aws import signed
from arclog.secrets.naming import Paths
from arclog.secrets.store import LocalStore
from arclog.wiring.secrets import choose_manager
from tests.integration.secrets.test_keychain import Clock
from tests.servers.managers import AzureServer, GoogleServer, VaultServer, running
from tests.servers.s3 import s3_server

SCOPE = "t/p/e"
CANARY = "c4nary-s3cret"


class Place:
    """The keychain of a process that is set up for one manager."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.settings = Settings({name.replace("__", "."): value for name, value in settings.items()})
        self.clock = Clock()
        self.clock.at = 1_800_000_000.0
        self.secrets = LocalSecrets((), LocalStore(home, self.settings).seal, self.settings, self.clock, self.manager)

    def manager(self) -> Any:
        return choose_manager(self.settings, self.clock)

    async def fields(self, name: str, scope: str = SCOPE) -> Any:
        return (await self.secrets.resolve({"name": "entry", "kind": "secret_manager", "secret": name}, scope)).fields

    async def refusal(self, name: str, scope: str = SCOPE) -> SecretUnavailable:
        with pytest.raises(SecretUnavailable) as caught:
            await self.fields(name, scope)
        assert CANARY not in str(caught.value)
        assert "keychain entry entry" in str(caught.value)
        return caught.value

    async def checked(self) -> str:
        manager = self.manager()
        try:
            await manager.check()
        except SecretUnavailable as refused:
            problem = refused
        else:
            return ""
        finally:
            await manager.close()
        assert CANARY not in str(problem)
        return problem.kind


class Case:
    """One manager with its server: how secrets get there, and how credentials are wrong."""

    def __init__(self, server: Any, put: Callable[[str, str], None], place: Callable[..., Place]) -> None:
        self.server = server
        self.put = put
        self.place = place


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials of whoever runs the tests."""
    import os

    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GCE_", "VAULT_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def aws() -> Iterator[Any]:
    with s3_server() as server:
        yield server


def _vault(tmp_path: Path, server: VaultServer) -> Case:
    def put(name: str, text: str) -> None:
        fields = json.loads(text) if text.startswith("{") else {"value": text}
        server.kept.setdefault(name, []).append(fields)

    def place(*, credential: str = "root-token", **more: Any) -> Place:
        (tmp_path / "token").write_text(credential + "\n")
        file = str(tmp_path / "token")
        return Place(
            tmp_path,
            secrets__manager="vault",
            secrets__manager_url=server.url,
            secrets__manager_credentials_file=file,
            **more,
        )

    return Case(server, put, place)


def account(key: rsa.RSAPrivateKey, url: str) -> dict[str, Any]:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {
        "type": "service_account",
        "project_id": "project-1",
        "private_key_id": "key-1",
        "private_key": pem.decode(),
        "client_email": "arclog@project-1.iam.gserviceaccount.com",
        "token_uri": f"{url}/token",
    }


def _google(tmp_path: Path, server: GoogleServer, key: rsa.RSAPrivateKey) -> Case:
    def put(name: str, text: str) -> None:
        server.kept[f"projects/project-1/secrets/{name.replace('/', '--')}"] = text

    def place(*, credential: str = "", **more: Any) -> Place:
        mine = rsa.generate_private_key(public_exponent=65537, key_size=2048) if credential else key
        (tmp_path / "account.json").write_text(json.dumps(account(mine, server.url)))
        file = str(tmp_path / "account.json")
        return Place(
            tmp_path,
            secrets__manager="google",
            secrets__manager_url=server.url,
            secrets__manager_credentials_file=file,
            **more,
        )

    return Case(server, put, place)


def _azure(tmp_path: Path, server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", server.url)

    def put(name: str, text: str) -> None:
        server.kept[name.replace("/", "--")] = text

    def place(*, credential: str = "client-secret-1", **more: Any) -> Place:
        fields = {"tenant_id": "tenant-1", "client_id": "client-1", "client_secret": credential}
        (tmp_path / "client.json").write_text(json.dumps(fields))
        file = str(tmp_path / "client.json")
        return Place(
            tmp_path,
            secrets__manager="azure",
            secrets__manager_url=server.url,
            secrets__manager_credentials_file=file,
            **more,
        )

    return Case(server, put, place)


@contextmanager
def verified(key: rsa.RSAPrivateKey) -> Iterator[GoogleServer]:
    def verify(assertion: str, audience: str) -> dict[str, Any]:
        options: Any = {"verify_exp": False, "verify_iat": False}  # the clock of the tests stands still
        claims: dict[str, Any] = jwt.decode(
            assertion, key.public_key(), algorithms=["RS256"], audience=audience, options=options
        )
        return claims

    with running(GoogleServer(verify)) as server:
        yield server


@pytest.fixture(params=["vault", "google", "azure"])
def case(
    request: pytest.FixtureRequest, tmp_path: Path, key: rsa.RSAPrivateKey, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Case]:
    if request.param == "vault":
        with running(VaultServer()) as vault:
            yield _vault(tmp_path, vault)
    elif request.param == "google":
        with verified(key) as google:
            yield _google(tmp_path, google, key)
    else:
        with running(AzureServer()) as azure:
            yield _azure(tmp_path, azure, monkeypatch)


# -- every manager -----------------------------------------------------------------------------------------------------


async def test_a_text_and_the_fields_of_an_object(case: Case) -> None:
    case.put("t/p/e/plain", CANARY)
    case.put("t/p/e/fields", json.dumps({"user": "ada", "password": CANARY}))
    place = case.place()
    assert await place.fields("plain") == {"value": CANARY}
    resolved = await place.secrets.resolve({"name": "x", "kind": "secret_manager", "secret": "fields"}, SCOPE)
    assert resolved.fields == {"user": "ada", "password": CANARY}
    assert CANARY in resolved.secrets
    assert await place.secrets.check([{"name": "plain", "kind": "secret_manager"}], SCOPE) == []
    await place.secrets.close()


async def test_the_narrowest_scope_wins_and_another_tenant_sees_nothing(case: Case) -> None:
    case.put("t/key", "tenant's")
    case.put("t/p/key", "project's")
    case.put("other/p/e/key", CANARY)
    place = case.place()
    assert await place.fields("key", "t/p/e") == {"value": "project's"}
    assert await place.fields("key", "t/q/e") == {"value": "tenant's"}
    problem = await place.refusal("key", "third/p/e")
    assert (problem.kind, problem.retryable) == ("config", False)
    assert "third" in str(problem)
    for name in ("../other/p/e/key", "p/key", "p--key", "/key", "key?x=1", "key/../key", ""):
        assert (await place.refusal(name)).kind == "config"
    await place.secrets.close()


async def test_a_secret_is_asked_for_once_in_a_while(case: Case) -> None:
    case.put("t/p/e/key", "old")
    place = case.place(secrets__manager_cache_s=60.0)
    results = await asyncio.gather(*(place.fields("key") for _ in range(20)))
    assert results == [{"value": "old"}] * 20
    request_count = len(case.server.requests)
    case.put("t/p/e/key", "new")
    place.clock.at += 59
    assert await place.fields("key") == {"value": "old"}
    assert len(case.server.requests) == request_count
    place.clock.at += 2
    assert await place.fields("key") == {"value": "new"}
    await place.secrets.close()


async def test_one_that_was_not_accepted_is_asked_for_again(case: Case) -> None:
    case.put("t/p/e/key", "old")
    place = case.place()
    await place.fields("key")
    case.put("t/p/e/key", "new")
    await place.secrets.refused({"name": "key", "kind": "secret_manager"}, SCOPE)
    assert await place.fields("key") == {"value": "new"}
    await place.secrets.close()


async def test_wrong_credentials_are_of_kind_auth(case: Case) -> None:
    case.put("t/p/e/key", CANARY)
    place = case.place(credential=f"wrong-{CANARY}")
    problem = await place.refusal("key")
    assert (problem.kind, problem.retryable) == ("auth", False)
    assert await place.checked() == "auth"
    await place.secrets.close()


async def test_the_doctor_is_content_with_a_process_that_is_known(case: Case) -> None:
    assert await case.place().checked() == ""


async def test_an_outage_is_of_kind_connection_and_over_when_it_is_over(case: Case) -> None:
    case.put("t/p/e/key", "value")
    place = case.place()
    case.server.broken = 503
    problem = await place.refusal("key")
    assert (problem.kind, problem.retryable) == ("connection", True)
    request_count = len(case.server.requests)
    await place.refusal("key")
    assert len(case.server.requests) == request_count, "tasks do not queue up behind a manager that is away"
    case.server.broken = 0
    place.clock.at += 3
    assert await place.fields("key") == {"value": "value"}
    await place.secrets.close()


@pytest.mark.parametrize("manager", ["vault", "google", "azure", "aws"])
async def test_a_server_that_is_not_there(
    tmp_path: Path, manager: str, key: rsa.RSAPrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = "http://127.0.0.1:1"
    credentials: dict[str, Any] = {
        "vault": f"s.{CANARY}",
        "google": json.dumps(account(key, nowhere)),
        "azure": json.dumps({"tenant_id": "t", "client_id": "c", "client_secret": CANARY}),
        "aws": json.dumps({"access_key_id": "a", "secret_access_key": CANARY}),
    }
    (tmp_path / "credentials").write_text(credentials[manager])
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", nowhere)
    place = Place(
        tmp_path,
        secrets__manager=manager,
        secrets__manager_url=nowhere,
        secrets__manager_credentials_file=str(tmp_path / "credentials"),
        secrets__aws_region="eu-central-1",
    )
    problem = await place.refusal("key")
    assert (problem.kind, problem.retryable) == ("connection", True)
    assert "127.0.0.1:1" in str(problem)
    await place.secrets.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"secrets__manager": "vault"}, "VAULT_ADDR"),
        ({"secrets__manager": "azure"}, "vault.azure.net"),
        ({"secrets__manager": "aws"}, "AWS_REGION"),
        ({"secrets__manager": "vault", "secrets__manager_url": "http://vault.example.com"}, "https"),
        ({"secrets__manager": "vault", "secrets__manager_url": f"https://u:{CANARY}@v"}, "must not contain a user"),
        (
            {"secrets__manager": "vault", "secrets__manager_url": "https://v", "secrets__manager_path": "{scope}"},
            "{name}",
        ),
    ],
)
async def test_settings_that_cannot_be_used(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    problem = await Place(tmp_path, **settings).refusal("key")
    assert problem.kind == "config"
    assert message in str(problem)


def test_an_unknown_manager_is_a_settings_error() -> None:
    with pytest.raises(SettingsError, match="local, vault, aws, google, azure"):
        Settings({"secrets.manager": "keepass"})


def test_names_of_different_scopes_never_meet() -> None:
    paths = Paths(Settings(), "--", r"[A-Za-z0-9_-]{1,255}")
    assert list(paths.of("key", "t/p/e")) == ["t--p--e--key", "t--p--key", "t--key"]
    for name, scope in [("key", "t--p/e"), ("key", "t-/p"), ("-key", "t"), ("a--b", "t"), ("key", "t/p/e.")]:
        with pytest.raises(SecretUnavailable):
            list(paths.of(name, scope))
    plain = Paths(Settings({"secrets.manager_path": "shared/{name}"}))
    assert list(plain.of("db/main", "t/p/e")) == ["shared/db/main"]
    for name in ("../x", "a//b", "a/./b", "/a", "a\n"):
        with pytest.raises(SecretUnavailable):
            list(plain.of(name, "t"))


# -- Vault -------------------------------------------------------------------------------------------------------------


async def test_vault_by_approle_whose_token_ends_or_is_revoked(tmp_path: Path) -> None:
    with running(VaultServer()) as server:
        case = _vault(tmp_path, server)
        server.kept["t/p/e/key"] = [{"value": "v"}]
        place = case.place(
            credential=json.dumps({"role_id": "role-1", "secret_id": "secret-id-1"}), secrets__manager_cache_s=0.0
        )
        assert await place.fields("key") == {"value": "v"}
        assert await place.fields("key") == {"value": "v"}
        assert server.count("approle/login") == 1
        place.clock.at += server.lease_s
        await place.fields("key")
        assert server.count("approle/login") == 2
        server.tokens.clear()
        assert await place.fields("key") == {"value": "v"}, "a revoked token is replaced at once"
        await place.secrets.close()


async def test_vault_a_deleted_version_and_a_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(VaultServer()) as server:
        server.namespace = "team-a"
        server.kept["t/key"] = [{"value": "v"}, None]
        place = _vault(tmp_path, server).place(secrets__vault_namespace="team-a")
        assert (await place.refusal("key")).kind == "config"
        await place.secrets.close()
        monkeypatch.setenv("VAULT_ADDR", server.url)
        monkeypatch.setenv("VAULT_TOKEN", "root-token")
        monkeypatch.setenv("VAULT_NAMESPACE", "team-a")
        assert await Place(tmp_path, secrets__manager="vault").checked() == ""


# -- AWS ---------------------------------------------------------------------------------------------------------------


def aws_call(server: Any, target: str, body: dict[str, Any]) -> Any:
    import urllib.request

    request = urllib.request.Request(f"{server.endpoint}/", data=json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/x-amz-json-1.1")
    request.add_header("X-Amz-Target", f"secretsmanager.{target}")
    request.add_header(
        "Authorization", "AWS4-HMAC-SHA256 Credential=k/20260101/eu-central-1/secretsmanager/aws4_request, x"
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        return json.loads(answer.read())


def aws_place(tmp_path: Path, server: Any, **more: Any) -> Place:
    return Place(
        tmp_path,
        secrets__manager="aws",
        secrets__manager_url=server.endpoint,
        secrets__aws_region="eu-central-1",
        **more,
    )


async def test_aws_texts_objects_and_bytes(tmp_path: Path, aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.forget()
    aws_call(aws, "CreateSecret", {"Name": "t/p/e/plain", "SecretString": CANARY})
    aws_call(aws, "CreateSecret", {"Name": "t/fields", "SecretString": '{"password": "pw-12345"}'})
    aws_call(aws, "CreateSecret", {"Name": "t/bytes", "SecretBinary": "Ynl0ZXM="})
    aws_call(aws, "CreateSecret", {"Name": "t/binary", "SecretBinary": "//8="})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    place = aws_place(tmp_path, aws)
    assert await place.fields("plain") == {"value": CANARY}
    assert await place.fields("fields") == {"password": "pw-12345"}
    assert await place.fields("bytes") == {"value": "bytes"}
    assert "not text" in str(await place.refusal("binary"))
    problem = await place.refusal("none")
    assert problem.kind == "config"
    assert "t/p/e/none or t/p/none or t/none" in str(problem)
    assert await place.checked() == ""
    await place.secrets.close()


async def test_aws_by_web_identity(tmp_path: Path, aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.forget()
    aws_call(aws, "CreateSecret", {"Name": "t/key", "SecretString": "v"})
    token = tmp_path / "token"
    token.write_text("eyJ.federated")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/arclog")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", aws.endpoint)
    place = aws_place(tmp_path, aws)
    assert await place.fields("key") == {"value": "v"}
    await place.secrets.close()


async def test_aws_by_the_machine_or_its_container(tmp_path: Path, aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.servers.managers import Manager, Request

    credentials = {"AccessKeyId": "ASIA", "SecretAccessKey": "k", "Token": "t", "Expiration": "2099-01-01T00:00:00Z"}

    class Metadata(Manager):
        def answer(self, request: Request) -> tuple[int, Any]:
            if request.path == "/latest/api/token" and request.method == "PUT":
                return 200, "session"
            if request.path == "/container" and request.headers.get("authorization") == "pod-token":
                return 200, credentials
            if request.headers.get("x-aws-ec2-metadata-token") != "session":
                return 401, ""
            return 200, credentials if request.path.endswith("/role-1") else "role-1"

    aws.forget()
    aws_call(aws, "CreateSecret", {"Name": "t/key", "SecretString": "v"})
    with running(Metadata()) as metadata:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
        place = aws_place(tmp_path, aws)
        assert await place.fields("key") == {"value": "v"}
        await place.secrets.close()
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{metadata.url}/container")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod-token")
        place = aws_place(tmp_path, aws)
        assert await place.fields("key") == {"value": "v"}
        await place.secrets.close()


async def test_aws_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.servers.managers import Manager, Request

    class Refusing(Manager):
        word = "AccessDeniedException"

        def answer(self, request: Request) -> tuple[int, Any]:
            return 400, {"__type": f"com.amazonaws.secretsmanager#{self.word}", "Message": CANARY}

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    with running(Refusing()) as server:
        server.endpoint = server.url
        place = aws_place(tmp_path, server, secrets__manager_cache_s=0.0)
        problem = await place.refusal("key")
        assert (problem.kind, "AccessDeniedException" in str(problem)) == ("auth", True)
        assert await place.checked() == "", "it knows who asks"
        server.word = "UnrecognizedClientException"
        assert await place.checked() == "auth"
        server.word = "ThrottlingException"
        problem = await place.refusal("key")
        assert (problem.kind, problem.retryable) == ("connection", True)
        await place.secrets.close()


@pytest.mark.parametrize("session", ["", "session-token"])
def test_a_signature_is_that_of_the_sdk(session: str) -> None:
    """botocore in a process of its own: it warns of much that is none of ours."""
    code = f"""
import json, datetime
import botocore.auth
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
moment = datetime.datetime(2026, 11, 16, 7, 30, tzinfo=datetime.timezone.utc)
botocore.auth.get_current_datetime = lambda *a, **k: moment.replace(tzinfo=None)
request = AWSRequest("POST", "https://secretsmanager.eu-central-1.amazonaws.com/", data=b'{{"SecretId":"a"}}',
    headers={{"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "secretsmanager.GetSecretValue"}})
signer = SigV4Auth(Credentials("AKIA", "secret/key", {session!r} or None), "secretsmanager", "eu-central-1")
request.context["timestamp"] = "20261116T073000Z"
signer.add_auth(request)
print(json.dumps(dict(request.headers)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    ours = signed(
        "POST",
        "https://secretsmanager.eu-central-1.amazonaws.com/",
        {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "secretsmanager.GetSecretValue"},
        b'{"SecretId":"a"}',
        access_key="AKIA",
        secret_key="secret/key",
        session_token=session,
        region="eu-central-1",
        service="secretsmanager",
        at=theirs["X-Amz-Date"],
    )
    assert ours["Authorization"] == theirs["Authorization"]


# -- Google and Azure --------------------------------------------------------------------------------------------------


async def test_google_by_the_machine(tmp_path: Path, key: rsa.RSAPrivateKey, monkeypatch: pytest.MonkeyPatch) -> None:
    with verified(key) as server:
        server.on_machine = True
        server.kept["projects/project-of-machine/secrets/t--key"] = "v"
        monkeypatch.setenv("GCE_METADATA_HOST", server.url.removeprefix("http://"))
        place = Place(tmp_path, secrets__manager="google", secrets__manager_url=server.url)
        assert await place.fields("key") == {"value": "v"}
        server.denied.add("projects/project-of-machine/secrets/t--p--e--other")
        problem = await place.refusal("other")
        assert (problem.kind, "PERMISSION_DENIED" in str(problem)) == ("auth", True)
        await place.secrets.close()


async def test_azure_by_federation_and_by_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(AzureServer()) as server:
        server.kept["t--key"] = "v"
        token = tmp_path / "federated"
        token.write_text("federated-token-1\n")
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", server.url)
        monkeypatch.setenv("AZURE_TENANT_ID", "tenant-1")
        monkeypatch.setenv("AZURE_CLIENT_ID", "client-1")
        monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(token))
        place = Place(tmp_path, secrets__manager="azure", secrets__manager_url=server.url)
        assert await place.fields("key") == {"value": "v"}
        await place.secrets.close()
        monkeypatch.delenv("AZURE_FEDERATED_TOKEN_FILE")
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", server.url)
        server.on_machine = True
        place = Place(tmp_path, secrets__manager="azure", secrets__manager_url=server.url)
        assert await place.fields("key") == {"value": "v"}
        server.denied.add("t--p--e--other")
        problem = await place.refusal("other")
        assert (problem.kind, "Forbidden" in str(problem)) == ("auth", True)
        await place.secrets.close()


async def test_a_manager_that_must_not_be_reached(tmp_path: Path) -> None:
    with running(VaultServer()) as server:
        case = _vault(tmp_path, server)
        case.put("db", CANARY)
        refused = await case.place(network__allow_networks="none").refusal("db")
        assert "network.allow_networks" in str(refused)
        assert not refused.retryable
