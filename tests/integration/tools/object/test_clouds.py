"""Clouds as places: what is sent with which credential, what each failure means, and that no upload is left behind."""

from __future__ import annotations

import asyncio
import base64
import json
import resource
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import MissingExtra
from arclog.ports.results import Content
from arclog.ports.secrets import Credential
from arclog.testing.tools import task_context
from arclog.tools.object import cloud
from arclog.tools.object.kind import ObjectConfig, ObjectTool
from tests.integration.tools.object.recording import Answer, ReceivedRequest, RecordingServer, recording_server
from tests.servers.s3 import S3Server, s3_server
from tests.unit.tools.object.support import KEYS, NOWHERE, Runner

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    with recording_server() as server:
        yield server


#: closed after each test
OPENED: list[ObjectTool] = []


def runner(endpoint: str, auth: Credential | None = KEYS, **settings: Any) -> Runner:
    changed = {name.replace("__", "."): value for name, value in settings.items()}
    run = Runner(
        ObjectTool(Settings({"object.request_retries": 0, "http.allow_networks": "loopback", **changed}), NOWHERE),
        endpoint=endpoint,
        allow_http=True,
    )
    run.auth = auth
    OPENED.append(run.tool)
    return run


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    while OPENED:
        await OPENED.pop().close()


def credential(**fields: str) -> Credential:
    return Credential("cloud", "secret", fields, tuple(fields.values()))


# -- what is sent


SENT: list[tuple[str, Credential | None, str, str]] = [
    ("s3://bucket/a/b.txt", KEYS, "/bucket/a/b.txt", "AWS4-HMAC-SHA256 Credential=AK/"),
    ("s3://bucket/a/b.txt", None, "/bucket/a/b.txt", ""),
    (
        "s3://bucket/b",
        credential(value='{"access_key_id": "IN", "secret_access_key": "JSON", "region": "eu-west-9"}'),
        "/bucket/b",
        "/eu-west-9/s3/",
    ),
    ("s3://bucket/b", credential(username="MINIO", password="pw"), "/bucket/b", "Credential=MINIO/"),
    ("gs://bucket/a/b.txt", credential(token="TOK"), "/bucket/a%2Fb%2Etxt", "Bearer TOK"),
    ("gs://bucket/a/b.txt", credential(value="TOK"), "/bucket/a%2Fb%2Etxt", "Bearer TOK"),
    ("gs://bucket/a/b.txt", None, "/bucket/a%2Fb%2Etxt", ""),
    ("az://box/a/b.txt", credential(account_name="acc", account_key="a2V5"), "/box/a/b.txt", "SharedKey acc:"),
    ("az://box/a/b.txt", credential(account_name="acc", token="TOK"), "/box/a/b.txt", "Bearer TOK"),
    ("az://box/a/b.txt", credential(account_name="acc", sas_key="sv=1&sig=abc"), "/box/a/b.txt?sv=1&sig=abc", ""),
]


@pytest.mark.parametrize(("url", "auth", "path", "authorization"), SENT)
async def test_requests_go_to_the_endpoint_with_the_credential(
    server: RecordingServer, url: str, auth: Credential | None, path: str, authorization: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # The worker's own credentials are never mixed in.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "WORKER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "WORKER")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "WORKER")
    server.answer = lambda _: Answer(200, b"hello", (("Content-Type", "text/plain"),))
    run = runner(server.endpoint, auth)
    assert await run.data("get", url) == "hello"
    (request,) = server.requests
    assert (request.method, request.path) == ("GET", path)
    sent = request.headers.get("authorization", "")
    assert authorization in sent
    assert bool(sent) == bool(authorization)
    assert "WORKER" not in str(request.headers)

    server.answer = lambda _: Answer(201 if url.startswith("az") else 200)
    if url.startswith("gs") and auth is None:
        problem = await run.failure("put", url, content={"a": 1})
        assert (problem.kind, problem.code) == ("auth", "UNSIGNED")
        return
    await run.data("put", url, content={"a": 1})
    assert (server.requests[-1].method, server.requests[-1].body) == ("PUT", b'{"a":1}')
    header = "x-ms-blob-content-type" if url.startswith("az") else "content-type"
    assert server.requests[-1].headers[header] == "application/json"
    assert authorization in server.requests[-1].headers.get("authorization", "")


SECRET = base64.b64encode(b"WORKER").decode()
#: Each is what the environment of a worker may have.
WORKERS: dict[str, dict[str, str]] = {
    "keys": {
        "AWS_ACCESS_KEY_ID": "WORKER",
        "AWS_SECRET_ACCESS_KEY": "WORKER",
        "AWS_SESSION_TOKEN": "WORKER",
        "AZURE_STORAGE_ACCOUNT_NAME": "WORKER",
        "AZURE_STORAGE_ACCOUNT_KEY": SECRET,
        "GOOGLE_SERVICE_ACCOUNT_KEY": '{"client_email": "WORKER", "private_key": "", "private_key_id": "", "disable_oauth": true}',
    },
    "tokens": {"AZURE_STORAGE_TOKEN": "WORKER", "GOOGLE_BEARER_TOKEN": "WORKER", "AZURE_STORAGE_SAS_KEY": "sig=WORKER"},
    "identity": {
        "AZURE_CLIENT_ID": "WORKER",
        "AZURE_TENANT_ID": "WORKER",
        "AZURE_CLIENT_SECRET": "WORKER",
        "AZURE_FEDERATED_TOKEN_FILE": "/nonexistent/WORKER",
        "GOOGLE_APPLICATION_CREDENTIALS": "/nonexistent/WORKER",
    },
    "type": {"AZURE_CREDENTIAL_TYPE": "access_key", "AZURE_STORAGE_ACCOUNT_KEY": SECRET},
    "emulator": {"AZURE_STORAGE_USE_EMULATOR": "true"},
    "unsigned": {"AZURE_SKIP_SIGNATURE": "true", "GOOGLE_SKIP_SIGNATURE": "true", "AWS_SKIP_SIGNATURE": "true"},
    "endpoint": {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1", "AZURE_ENDPOINT": "http://127.0.0.1:1"},
}


def in_environment(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def assert_without_the_worker(server: RecordingServer) -> None:
    for request in server.requests:
        assert "WORKER" not in f"{request.path} {request.headers} {request.body!r}"


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize("ambient", [False, True])
@pytest.mark.parametrize(("url", "auth", "path", "authorization"), [*SENT, ("az://box/x", None, "/box/x", "")])
async def test_an_endpoint_gets_nothing_of_the_worker(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch, url: str, auth: Credential | None, path: str,
    authorization: str, worker: str, ambient: bool,
) -> None:  # fmt: skip
    in_environment(monkeypatch, WORKERS[worker])
    server.answer = lambda _: Answer(200, b"hello", (("Content-Type", "text/plain"),))
    run = runner(server.endpoint, auth, object__ambient_credentials=ambient)
    assert await run.data("get", url) == "hello"
    (request,) = server.requests
    sent = request.headers.get("authorization", "")
    assert (request.path, bool(sent)) == (path, bool(authorization))
    assert authorization in sent
    assert_without_the_worker(server)


@pytest.mark.parametrize("worker", WORKERS)
async def test_a_client_secret_of_azure_is_exchanged_without_the_worker(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch, worker: str
) -> None:
    in_environment(monkeypatch, WORKERS[worker])
    token = Answer(200, b'{"access_token": "GIVEN", "expires_in": 3600}', (("Content-Type", "application/json"),))
    hello = Answer(200, b"hello", (("Content-Type", "text/plain"),))
    server.answer = lambda request: token if request.method == "POST" else hello
    auth = credential(
        account_name="acc", client_id="ID", client_secret="OWN", tenant_id="TENANT", authority_host=server.endpoint
    )
    assert await runner(server.endpoint, auth).data("get", "az://box/x") == "hello"
    exchange, request = server.requests
    assert exchange.path == "/TENANT/oauth2/v2.0/token"
    assert b"client_id=ID" in exchange.body
    assert b"client_secret=OWN" in exchange.body
    assert request.headers["authorization"] == "Bearer GIVEN"
    assert_without_the_worker(server)


async def test_a_client_secret_goes_to_azure_only(server: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", server.endpoint)
    hosts = []

    async def resolved(host: str, port: int) -> list[str]:
        hosts.append(host)
        return ["127.0.0.1" if host == "127.0.0.1" else "10.1.2.3"]

    monkeypatch.setattr("arclog.drivers.http.guard._resolved", resolved)
    auth = credential(account_name="acc", client_id="ID", client_secret="OWN", tenant_id="TENANT")
    await runner(server.endpoint, auth).failure("get", "az://box/x")
    assert "login.microsoftonline.com" in hosts
    assert server.requests == []


@pytest.mark.parametrize(
    "variable", ["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "SERVICE_ACCOUNT", "GOOGLE_BEARER_TOKEN"]
)
async def test_a_service_account_beside_that_of_the_worker_is_refused(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    server.answer = lambda _: Answer(200, b"hello", (("Content-Type", "text/plain"),))
    account = {"type": "service_account", "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}  # fmt: skip
    auth = credential(value=json.dumps(account))
    assert await runner(server.endpoint, auth).data("get", "gs://b/x") == "hello"
    monkeypatch.setenv(variable, "WORKER")
    problem = await runner(server.endpoint, auth).failure("get", "gs://b/x")
    assert (problem.kind, len(server.requests)) == ("config", 1)
    assert f"{variable} is set in the worker's environment" in problem.message


@pytest.mark.parametrize(
    ("url", "variables"),
    [
        ("s3://b/x", {"AWS_SERVER_SIDE_ENCRYPTION": "sse-c", "AWS_SSE_CUSTOMER_KEY_BASE64": "V09SS0VS" * 5 + "V08="}),
        ("az://b/x", {"AZURE_STORAGE_ENCRYPTION_KEY": "V09SS0VS" * 5 + "V08="}),
    ],
)
async def test_the_workers_encryption_key_is_sent_to_no_endpoint(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch, url: str, variables: dict[str, str]
) -> None:
    in_environment(monkeypatch, variables)
    problem = await runner(server.endpoint, None).failure("get", url)
    assert problem.kind == "config"
    assert "is set in the worker's environment" in problem.message
    assert server.requests == []


AMBIENT = [
    ("s3://b/x", "AWS_ENDPOINT_URL", "Credential=WORKER/"),
    ("gs://b/x", "GOOGLE_BASE_URL", "Bearer WORKER"),
    ("az://b/x", "AZURE_STORAGE_ENDPOINT", "Bearer WORKER"),
]


@pytest.mark.parametrize(("url", "variable", "authorization"), AMBIENT)
async def test_the_workers_own_credentials_by_a_setting(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch, url: str, variable: str, authorization: str
) -> None:
    in_environment(monkeypatch, {**WORKERS["keys"], **WORKERS["tokens"], variable: server.endpoint})
    server.answer = lambda _: Answer(200, b"hello", (("Content-Type", "text/plain"),))
    run = runner("", None, object__ambient_credentials=True)
    assert await run.data("get", url) == "hello"
    assert authorization in server.requests[0].headers["authorization"]


async def test_an_unsigned_change_of_google_is_refused_also_where_the_worker_has_credentials(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_environment(monkeypatch, WORKERS["tokens"])
    run = runner(server.endpoint, None, object__ambient_credentials=True)
    assert (await run.failure("put", "gs://b/x", content="x")).code == "UNSIGNED"
    assert server.requests == []


@pytest.mark.parametrize("region", ["evil.example/", "evil.example#", "a@evil.example:80/", "evil.example\\"])
async def test_a_region_is_no_address(region: str) -> None:
    run = runner("", None, object__ambient_credentials=True)
    problem = await run.failure("get", "s3://bucket/x", region=region)
    assert problem.kind == "config"
    assert problem.message.startswith("region: ")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"account_name": "evil.example/", "token": "T"}, "account_name: "),
        ({"account_name": "acc", "account_key": "?CANARY"}, "the account_key of the credential is not base64"),
        ({"account_name": "acc", "sas_key": "CANARY"}, "the sas_key of the credential is not name=value"),
    ],
)
async def test_fields_of_azure_that_are_refused(fields: dict[str, str], message: str) -> None:
    problem = await runner("", credential(**fields)).failure("get", "az://box/x")
    assert problem.kind == "config"
    assert message in problem.message
    assert "CANARY" not in problem.message


@pytest.mark.parametrize(
    ("url", "auth"),
    [
        ("s3://b/x", credential(value="just a text")),
        ("s3://b/x", credential(access_key_id="AK")),
        ("gs://b/x", credential(username="u")),
        ("az://b/x", credential(account_key="k")),
    ],
)
async def test_a_credential_that_does_not_suit(server: RecordingServer, url: str, auth: Credential) -> None:
    problem = await runner(server.endpoint, auth).failure("get", url)
    assert problem.kind == "config"
    assert "auth 'cloud' (secret) does not fit" in problem.message
    assert "must have" in problem.message
    assert not any(secret in problem.message for secret in auth.secrets if len(secret) > 3)
    assert server.requests == []


async def test_a_broken_service_account_is_not_repeated(server: RecordingServer) -> None:
    auth = credential(value='{"type": "service_account", "private_key": "CANARY"}')
    problem = await runner(server.endpoint, auth).failure("get", "gs://b/x")
    assert problem.kind == "config"
    assert "CANARY" not in problem.message


# -- what each failure means


def xml(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>It is {code}.</Message></Error>".encode()


FAILURES = [
    (401, "InvalidAccessKeyId", "auth", False),
    (403, "AccessDenied", "auth", False),
    (404, "NoSuchBucket", "not_found", False),
    (400, "EntityTooLarge", "client_error", False),
    (429, "SlowDown", "rate_limit", True),
    (500, "InternalError", "server_error", True),
    (503, "SlowDown", "server_error", True),
]


@pytest.mark.parametrize(("status", "code", "kind", "retryable"), FAILURES)
@pytest.mark.parametrize("action", ["get", "put", "list", "delete"])
async def test_error_kinds(
    server: RecordingServer, status: int, code: str, kind: str, retryable: bool, action: str
) -> None:
    server.answer = lambda _: Answer(status, xml(code))
    run = runner(server.endpoint)
    more: dict[str, Any] = {"content": "x"} if action == "put" else {}
    problem = await run.failure(action, "s3://bucket/x", **more)
    assert (problem.kind, problem.code, problem.retryable) == (kind, code, retryable)
    assert problem.message.startswith("s3://bucket/x: ")
    assert "\n" not in problem.message
    # The same failure reads the same every time: it may stand in a log that is compared.
    assert await run.failure(action, "s3://bucket/x", **more) == problem


async def test_an_unsigned_request_that_is_denied_says_so(server: RecordingServer) -> None:
    server.answer = lambda _: Answer(403, xml("AccessDenied"))
    problem = await runner(server.endpoint, None).failure("get", "s3://bucket/x")
    assert "not signed: give the task an `auth`" in problem.message


async def test_nobody_listens() -> None:
    problem = await runner("http://127.0.0.1:1").failure("get", "s3://bucket/x")
    assert (problem.kind, problem.retryable) == ("connection", True)


async def test_a_server_that_says_nothing(server: RecordingServer) -> None:
    server.answer = lambda _: None
    problem = await runner(server.endpoint, object__read_timeout_s=0.05).failure("get", "s3://bucket/x")
    assert (problem.kind, problem.retryable) == ("timeout", True)
    assert "object.read_timeout_s" in problem.message


async def test_a_body_that_is_cut(server: RecordingServer) -> None:
    server.answer = lambda _: Answer(200, b"x" * 100, (("Content-Type", "image/png"),), length=5000)
    run = runner(server.endpoint)
    problem = await run.failure("get", "s3://bucket/x")
    assert problem.kind == "connection"
    assert run.results.kept == {}


async def test_an_answer_that_makes_no_sense(server: RecordingServer) -> None:
    server.answer = lambda _: Answer(200, b"<html>hello</html>")
    run = runner(server.endpoint)
    problem = await run.failure("put", "s3://bucket/x", content=await run.ref(b"x" * 9 * MIB))
    assert (problem.kind, problem.code) == ("server_error", "BAD_ANSWER")


async def test_a_request_is_tried_again_but_not_a_create(server: RecordingServer) -> None:
    server.answer = lambda _: Answer(503)
    run = runner(server.endpoint, object__request_retries=1)
    await run.failure("get", "s3://bucket/x")
    assert len(server.requests) == 2
    await run.failure("put", "s3://bucket/x", content="x", if_absent=True)
    assert len(server.requests) == 3


@pytest.mark.parametrize("setting", ["object__allow_networks", "http__allow_networks"])
async def test_an_endpoint_on_loopback_is_reached_only_where_a_setting_says_so(
    server: RecordingServer, setting: str
) -> None:
    closed: dict[str, Any] = {setting: "none"}
    problem = await runner(server.endpoint, **closed).failure("get", "s3://bucket/x")
    assert (problem.kind, problem.code) == ("config", "ADDRESS_REFUSED")
    assert server.requests == []


@pytest.mark.parametrize("action", ["get", "put", "list", "delete"])
async def test_a_redirect_over_http_is_not_followed(server: RecordingServer, action: str) -> None:
    with recording_server("127.0.0.2") as other:
        server.answer = lambda received: Answer(307, headers=(("Location", other.endpoint + received.path),))
        run = runner(server.endpoint, http__allow_networks="127.0.0.1")
        more = {"content": "secret"} if action == "put" else {}
        problem = await run.failure(action, "s3://bucket/x", **more)
        assert other.requests == []
        assert problem.code in ("REDIRECT_REFUSED", "HTTP_307")  # an upload is not sent again by the library itself


async def test_a_name_that_moves_to_another_address_is_checked_again(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address that was checked is the one that is connected to."""
    answers = iter(["127.0.0.1", "10.1.2.3", "10.1.2.3", "10.1.2.3"])

    async def resolved(host: str, port: int) -> list[str]:
        return [next(answers)]

    monkeypatch.setattr("arclog.drivers.http.guard._resolved", resolved)
    endpoint = server.endpoint.replace("127.0.0.1", "moving.example")
    problem = await runner(endpoint).failure("get", "s3://bucket/x")
    assert problem.code == "ADDRESS_REFUSED"
    assert server.requests == []


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("http://169.254.169.254", "object.allow_networks"),
        ("http://[::ffff:169.254.169.254]", "object.allow_networks"),
        ("http://0xa9fea9fe", "object.allow_networks"),
        ("http://2852039166:80/", "object.allow_networks"),
        ("http://[fe80::1]", "object.allow_networks"),
        ("http://[fd00:ec2::254]", "object.allow_networks"),
        ("ftp://host", "not an address of a server"),
        ("host:9000", "not an address of a server"),
        ("http://u:CANARY@127.0.0.1", "must not contain credentials"),
        ("http://127.0.0.1:port", "endpoint"),
        ("http://no-such-host.invalid", "cannot be resolved"),
    ],
)
async def test_endpoints_that_are_refused(endpoint: str, message: str) -> None:
    problem = await runner(endpoint).failure("get", "s3://bucket/x")
    assert message in problem.message
    assert "CANARY" not in problem.message


async def test_http_must_be_meant() -> None:
    run = runner("http://127.0.0.1:1")
    problem = await run.failure("get", "s3://bucket/x", allow_http=False)
    assert problem.kind == "config"
    assert "allow_http: true" in problem.message


async def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtra, match=r"s3:// needs the package obstore.*pip install 'arclog\[object\]'"):
        await runner("http://127.0.0.1:1").failure("get", "s3://bucket/x")
    files = Runner(ObjectTool(Settings({"object.file_root": str(tmp_path)}), NOWHERE))
    assert await files.data("put", "a.txt", content="files need no extra")


# -- against a server that keeps what it is given


async def test_no_bucket(s3: S3Server) -> None:
    run = runner(s3.endpoint)
    for action, more in (("get", {}), ("put", {"content": "x"}), ("list", {}), ("delete", {"keys": ["a", "b"]})):
        problem = await run.failure(action, "s3://no-such-bucket/x", **more)
        assert problem.kind == "not_found"


async def test_too_large_to_create(s3: S3Server) -> None:
    bucket = s3.bucket("create")
    run = runner(s3.endpoint, object__if_absent_max_bytes=10)
    await run.data("put", f"s3://{bucket}/ten", content="0123456789", if_absent=True)
    problem = await run.failure("put", f"s3://{bucket}/x", content=await run.ref(b"x" * 11), if_absent=True)
    assert (problem.kind, problem.code) == ("limit", "object.if_absent_max_bytes")


async def test_a_cancelled_upload_is_aborted(s3: S3Server) -> None:
    bucket = s3.bucket("aborted")
    run = runner(s3.endpoint, object__request_retries=2)  # S3 can refuse an abort while parts of it still arrive
    task = await stalled_upload(run, f"s3://{bucket}/big")
    assert s3.uploads(bucket) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert s3.uploads(bucket) == 0
    assert await run.data("list", f"s3://{bucket}/") == []


async def stalled_upload(run: Runner, url: str) -> asyncio.Task[Any]:
    """Start an upload whose content stops to arrive after some parts."""
    ref = await run.ref(b"")
    begun = asyncio.Event()

    async def stalling(*_: object) -> Any:
        for _part in range(3):
            yield b"x" * (8 * MIB)
        begun.set()
        await asyncio.Event().wait()

    run.results.chunks = stalling  # type: ignore[method-assign,assignment]  # a fault
    task = asyncio.create_task(run("put", url, content=ref))
    await begun.wait()
    return task


async def test_an_upload_that_cannot_be_aborted_is_logged(
    server: RecordingServer, caplog: pytest.LogCaptureFixture
) -> None:
    begun = b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
    answers = {"POST": Answer(200, begun), "PUT": Answer(200), "DELETE": Answer(503, xml("SlowDown"))}
    server.answer = lambda request: answers[request.method]
    task = await stalled_upload(runner(server.endpoint), "s3://bucket/big")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "DELETE" in [request.method for request in server.requests]
    assert "its parts may remain in the bucket: s3://bucket/big: " in caplog.text
    assert "SlowDown" in caplog.text


async def test_an_upload_whose_source_breaks_is_aborted(s3: S3Server) -> None:
    from arclog.model.errors import ResultUnavailable

    bucket = s3.bucket("broken")
    run = runner(s3.endpoint, object__request_retries=2)
    ref = await run.ref(b"")

    async def breaking(*_: object) -> Any:
        for _part in range(3):
            yield b"x" * (8 * MIB)
        raise ResultUnavailable("stored result was changed")

    run.results.chunks = breaking  # type: ignore[method-assign,assignment]  # a fault
    problem = await run.failure("put", f"s3://{bucket}/big", content=ref)
    assert (problem.kind, problem.message) == ("result", "stored result was changed")
    assert s3.uploads(bucket) == 0


async def test_a_cancelled_download_stores_nothing(server: RecordingServer) -> None:
    server.answer = lambda _: None
    run = runner(server.endpoint)
    task = asyncio.create_task(run("get", "s3://bucket/x"))
    await asyncio.to_thread(server.stalled.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.results.kept == {}


@pytest.mark.parametrize(
    ("action", "status"), [("list", 200), ("list", 400), ("get", 401), ("put", 400), ("delete", 400)]
)
async def test_what_a_named_server_sends_beside_content_is_bounded(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch, action: str, status: int
) -> None:
    monkeypatch.setattr(cloud, "_MOST_UNREAD", MIB)
    server.answer = lambda _: Answer(status, b"x" * 8 * MIB)
    run = runner(server.endpoint)
    problem = await run.failure(action, "s3://bucket/x", **({"content": "x"} if action == "put" else {}))
    assert (problem.kind, problem.code) == ("limit", "RESPONSE_TOO_LARGE")


async def test_content_and_other_tasks_do_not_count_for_that_bound(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud, "_MOST_UNREAD", 24 * MIB)
    run = runner(server.endpoint)
    server.answer = lambda _: Answer(200, b"x" * 64 * MIB)
    assert (await run("get", "s3://bucket/x", decode="bytes")).error is None
    server.answer = lambda _: Answer(404, b"x" * 10 * MIB)
    for _ in range(4):
        assert (await run.failure("get", "s3://bucket/x")).kind == "not_found"


class _Sink:
    """Counts what it is given: 300 MB must not have to fit anywhere."""

    inline_max_bytes = 1000

    def __init__(self, size: int) -> None:
        self.size = size
        self.got = 0

    def writer(self, **_: Any) -> _Sink:
        return self

    async def write(self, chunk: bytes) -> None:
        self.got += len(chunk)

    async def commit(self) -> Content:
        return Content("", self.got, self.got, "", "none", None, "")

    async def abandon(self) -> None: ...

    async def read(self, _: object) -> Any:
        piece = b"x" * MIB
        for _n in range(self.size // MIB):
            yield piece


@pytest.mark.slow
async def test_memory_is_flat(server: RecordingServer, s3: S3Server) -> None:
    size = 300 * MIB
    run = runner(server.endpoint)
    ref = await run.ref(b"")
    sink = _Sink(size)
    parts = 0

    def upload(received: ReceivedRequest) -> Answer:
        nonlocal parts
        parts += received.method == "PUT"
        if received.method == "POST" and received.path.endswith("?uploads="):
            return Answer(200, b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
        if received.method == "POST":
            return Answer(200, b'<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>')
        server.requests.clear()
        return Answer()

    context = task_context(results=None, auth=KEYS)
    context.results = sink  # type: ignore[assignment]  # a fault
    typed = ObjectConfig("put", "s3://b/big", content=ref, endpoint=server.endpoint, allow_http=True)
    server.answer = upload
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = await run.tool.run(typed, context)
    assert outcome.error is None, outcome.error
    assert outcome.result["data"]["size"] == size
    assert parts == 38  # of 8 MiB
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 150 * MIB, f"{grown / MIB:.0f} MiB"
