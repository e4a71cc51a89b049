"""What only the NATS bus has: ways in, what it says when it is set up wrongly, and work queues that can vanish."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]  # it has no stubs
import pytest

from arclog.buses.nats import NatsBus
from arclog.drivers.nats.address import Login
from arclog.drivers.nats.cluster import Cluster
from arclog.model.config.settings import Settings
from arclog.model.errors import BusUnavailable, SettingsError
from arclog.ports.bus import Message, Notice
from arclog.testing.conformance.bus import Ear, until
from tests.servers.certs import certificate
from tests.servers.nats import NatsServer, running_nats

PASSWORD = "pass word:@/"
QUOTED = "pass%20word%3A%40%2F"


def settings_for(url: str, **more: Any) -> Settings:
    own = uuid.uuid4().hex[:12]
    values = {"bus.url": url, "bus.prefix": own, "bus.events_subject": f"{own}.events", "bus.max_retry_s": 0.1, **more}
    return Settings(values)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Ear]:
    ear = Ear(NatsBus(settings))
    await ear.bus.open(ear.hear)
    try:
        yield ear
    finally:
        await ear.bus.close()


async def carries(settings: Settings) -> bool:
    async with opened(settings) as a, opened(settings) as b:
        a.bus.notify(Notice(moved=((1, 2),)))
        await b.until(lambda ear: ear.heads == {1: 2})
        return a.bus.figures().connected


# -- ways in ---------------------------------------------------------------------------------------------------------------


async def test_a_user_with_a_password_gets_in_and_a_wrong_one_is_told_without_it() -> None:
    config = f"authorization {{ user: joe, password: {json.dumps(PASSWORD)} }}"
    with running_nats(config=config) as server:
        where = server.url.removeprefix("nats://")
        assert await carries(settings_for(f"nats://joe:{QUOTED}@{where}"))
        for wrong in (f"nats://joe:hunter2@{where}", f"nats://{where}"):
            with pytest.raises(SettingsError, match="rejects the login") as raised:
                await carries(settings_for(wrong))
            assert "hunter2" not in str(raised.value)
            assert "ARCLOG_BUS_CREDS_FILE" in str(raised.value)


async def test_a_token_gets_in() -> None:
    with running_nats(config="authorization { token: tok-1 }") as server:
        assert await carries(settings_for(server.url.replace("//", "//tok-1@")))


async def test_an_nkey_gets_in(tmp_path: Path) -> None:
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    pair = nkeys.from_seed(bytearray(seed))
    (tmp_path / "user.nk").write_bytes(seed)
    config = f"authorization {{ users: [ {{ nkey: {pair.public_key.decode()} }} ] }}"
    with running_nats(config=config) as server:
        assert await carries(settings_for(server.url, **{"bus.nkey_file": str(tmp_path / "user.nk")}))
        with pytest.raises(SettingsError, match="rejects the login"):
            await carries(settings_for(server.url))
    with pytest.raises(SettingsError, match=r"ARCLOG_BUS_NKEY_FILE: .*No such file"):
        await carries(settings_for(server.url, **{"bus.nkey_file": str(tmp_path / "none")}))


async def test_a_credentials_file_gets_in(tmp_path: Path) -> None:
    kinds = (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER)
    operator, system, account, user = (Keys(kind, number) for number, kind in enumerate(kinds))
    top = operator.signed(operator, {"type": "operator", "version": 2, "system_account": system.public})
    unlimited = {"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1}
    store = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    limits = {**unlimited, **store, "wildcards": True}
    side = operator.signed(system, {"type": "account", "version": 2, "limits": unlimited})
    middle = operator.signed(account, {"type": "account", "version": 2, "limits": limits})
    bottom = account.signed(user, {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1})
    (tmp_path / "user.creds").write_text(
        f"-----BEGIN NATS USER JWT-----\n{bottom}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    accounts = f"{{ {account.public}: {middle}, {system.public}: {side} }}"
    config = f"operator: {top}\nresolver: MEMORY\nresolver_preload: {accounts}\nsystem_account: {system.public}"
    with running_nats(config=config) as server:
        assert await carries(settings_for(server.url, **{"bus.creds_file": str(tmp_path / "user.creds")}))
        with pytest.raises(SettingsError, match="rejects the login"):
            await carries(settings_for(server.url))


class Keys:
    """A pair of keys that can sign who somebody is."""

    def __init__(self, prefix: int, number: int) -> None:
        self.seed = nkeys.encode_seed(bytes([number]) * 32, prefix)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public = self._pair.public_key.decode()

    def signed(self, whom: Keys, claims: dict[str, Any]) -> str:
        body = {"jti": whom.public, "iat": 1_700_000_000, "iss": self.public, "sub": whom.public, "nats": claims}
        text = b".".join(_base64(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body))
        return (text + b"." + _base64(self._pair.sign(text))).decode()


def _base64(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


async def test_tls_with_a_client_certificate(tmp_path: Path) -> None:
    shown, own = certificate(tmp_path / "server"), certificate(tmp_path / "client", "client")
    config = f"""
        tls {{ cert_file: "{shown.chain}", key_file: "{shown.key}", ca_file: "{own.authority}", verify: true }}
    """
    files = {"bus.ca_file": str(shown.authority), "bus.cert_file": str(own.chain), "bus.key_file": str(own.key)}
    with running_nats(config=config) as server:
        url = server.url.replace("nats://", "tls://")
        assert await carries(settings_for(url, **files))
        with pytest.raises(SettingsError, match=r"is not trusted.*ARCLOG_BUS_CA_FILE"):
            await carries(settings_for(url, **{**files, "bus.ca_file": ""}))
        with pytest.raises(SettingsError, match="ARCLOG_BUS_CERT_FILE"):
            await carries(settings_for(url, **{"bus.ca_file": str(shown.authority)}))
    with pytest.raises(SettingsError, match=r"ARCLOG_BUS_CA_FILE: .* is not a PEM file"):
        await carries(settings_for(url, **{"bus.ca_file": str(shown.key)}))


async def test_a_server_without_tls_never_sees_the_password(nats_server: NatsServer) -> None:
    messages: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"headers":true}\r\n')
        messages.append(await reader.read(1000))
        writer.close()

    spy = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = spy.sockets[0].getsockname()[1]
    for url in (f"tls://joe:hunter2@127.0.0.1:{port}", nats_server.url.replace("nats://", "tls://joe:hunter2@")):
        with pytest.raises(SettingsError, match="does not use TLS"):
            await carries(settings_for(url))
    assert messages == [b""]
    spy.close()
    await spy.wait_closed()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://host", "not an address of a NATS server"),
        ("nats://", "not an address of a NATS server"),
        ("nats://joe:hunter2@host:port", "not an address of a NATS server"),
        ("nats://joe:hunter2@host/path", "not an address of a NATS server"),
        ("nats://a,tls://b", "are mixed"),
    ],
)
def test_an_address_that_is_none_is_refused_without_its_password(url: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as raised:
        Cluster(Settings({"bus.url": url}))
    assert "hunter2" not in str(raised.value)
    assert "ARCLOG_BUS_URL" in str(raised.value)


def test_several_servers_share_scheme_and_credentials() -> None:
    cluster = Cluster(Settings({"bus.url": "nats://joe:a%20b@one:4333, two, [::1]:9"}))
    assert str(cluster) == "nats://one:4333, nats://two:4222, nats://[::1]:9"
    assert cluster._login == Login(user="joe", password="a b")
    assert "a b" not in f"{cluster} {cluster._login!r}"


@pytest.mark.parametrize("name", ["bus.prefix", "bus.events_stream", "bus.events_subject"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="ARCLOG_" + name.replace(".", "_").upper()):
        NatsBus(Settings({"bus.url": "nats://host", name: "a b.>"}))


async def test_of_several_servers_one_that_is_there_is_enough(nats_server: NatsServer) -> None:
    client, _ = await Cluster(Settings({"bus.url": f"nats://127.0.0.1:1,{nats_server.url}"})).connect(5.0)
    await client.close()


# -- servers that will not do ----------------------------------------------------------------------------------------------


async def test_a_server_without_jetstream_is_refused() -> None:
    # An account of its own has JetStream only if it says so.
    config = "accounts { A { users: [{user: a, password: a}] }, SYS { users: [] } }\nsystem_account: SYS"
    missing = pytest.raises(SettingsError, match="has no JetStream for this account; start nats-server with -js")
    with running_nats(config=config) as server, missing:
        await carries(settings_for(server.url.replace("//", "//a:a@")))


async def test_a_server_that_was_started_without_jetstream_is_refused() -> None:
    missing = pytest.raises(SettingsError, match="has no JetStream for this account; start nats-server with -js")
    with running_nats(jetstream=False) as server, missing:
        await carries(settings_for(server.url))


@pytest.mark.parametrize("name", ["bus.creds_file", "bus.nkey_file"])
@pytest.mark.parametrize(
    "text", ["", "hunter2", "-----BEGIN NATS USER JWT-----\nx\n-----BEGIN USER NKEY SEED-----\nhunter2\n"]
)
def test_a_file_that_holds_no_credentials_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(SettingsError, match="ARCLOG_" + name.replace(".", "_").upper()) as raised:
        Cluster(Settings({"bus.url": "nats://host", name: str(tmp_path / "file")}))
    assert "hunter2" not in str(raised.value)


async def test_an_old_server_is_refused() -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.8.4","max_payload":1048576,"headers":true}\r\n')
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    old = await asyncio.start_server(listen, "127.0.0.1", 0)
    with pytest.raises(SettingsError, match=r"is NATS 2\.8\.4; 2\.9 or newer is needed"):
        await carries(settings_for(f"nats://127.0.0.1:{old.sockets[0].getsockname()[1]}"))
    old.close()
    await old.wait_closed()


async def test_a_server_that_is_away_is_said_once_and_again_when_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "arclog.bus")
    with running_nats() as server:
        server.kill()
        async with opened(settings_for(server.url.replace("//", "//joe:hunter2@"))) as ear:
            assert not ear.bus.figures().connected
            server.start()
            await until(lambda: ear.bus.figures().connected)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "INFO"]
    assert "NATS cannot be reached" in caplog.messages[0]
    assert "hunter2" not in caplog.text


# -- queues ----------------------------------------------------------------------------------------------------------------


async def test_an_offer_that_meets_nobody_who_waits_is_handed_on(nats_server: NatsServer) -> None:
    settings = settings_for(nats_server.url)
    async with opened(settings) as a, opened(settings) as b, opened(settings) as c:
        b.bus.waiting({"default"})
        a.bus.notify(Notice(offered=(("default", 1),)))
        await b.until(lambda ear: len(ear.pools) == 1)
        b.bus.waiting({"default"})  # a fetch is open by now, or soon
        b.bus.waiting(())
        c.bus.waiting({"default"})
        a.bus.notify(Notice(offered=(("default", 1),)))
        await c.until(lambda ear: ear.pools)
        assert len(b.pools) == 1


async def test_one_offer_wakes_one_process(nats_server: NatsServer) -> None:
    settings = settings_for(nats_server.url)
    async with opened(settings) as a, opened(settings) as b, opened(settings) as c:
        for ear in (b, c):
            ear.bus.waiting({"default"})
        a.bus.notify(Notice(offered=(("default", 2),)))
        # Each takes one, since it wants the next only when somebody waits anew.
        await b.until(lambda ear: ear.pools)
        await c.until(lambda ear: ear.pools)
        assert (b.pools, c.pools) == (["default"], ["default"])


async def test_a_stream_that_somebody_removed_is_made_anew(nats_server: NatsServer) -> None:
    settings = settings_for(nats_server.url)
    name = settings.text("bus.prefix")
    client, stream = await Cluster(settings).connect(5.0)
    async with opened(settings) as a, opened(settings) as b:
        b.bus.waiting({"default"})
        a.bus.notify(Notice(offered=(("default", 1),)))
        await b.until(lambda ear: len(ear.pools) == 1)
        b.bus.waiting({"default"})
        await stream.delete_stream(f"{name}-offers")

        async def again() -> None:
            while len(b.pools) < 2:
                a.bus.notify(Notice(offered=(("default", 1),)))
                await asyncio.sleep(0.05)

        async with asyncio.timeout(30):
            await again()
    await client.close()


async def test_something_that_is_no_notice_is_passed_over(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(nats_server.url)
    client, _ = await Cluster(settings).connect(5.0)
    async with opened(settings) as a, opened(settings) as b:
        await client.publish(f"{settings.text('bus.prefix')}.notices", b"hello")
        await client.flush()
        a.bus.notify(Notice(moved=((1, 1),)))
        await b.until(lambda ear: ear.heads)
    assert "is not a notification" in caplog.text
    await client.close()


async def test_a_permission_that_is_missing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    config = """authorization { users: [
        { user: a, password: a, permissions: { publish: ["$JS.>", "_INBOX.>"], subscribe: ">" } } ] }"""
    with running_nats(config=config) as server:
        async with opened(settings_for(server.url.replace("//", "//a:a@"))) as ear:
            ear.bus.notify(Notice(moved=((1, 1),)))
            await until(lambda: "permissions violation for publish" in caplog.text.lower())
            assert "allow it to the user of ARCLOG_BUS_URL" in caplog.text


async def test_a_user_needs_no_more_rights_than_the_page_names() -> None:
    page = (Path(__file__).parents[3] / "docs/bus.md").read_text(encoding="utf-8")
    line = re.search(r"Publish: (.*?)\. Subscribe: (.*?)\. The", page, re.DOTALL)
    assert line is not None
    settings = settings_for("nats://a:a@host")
    rights = {}
    for right, listed in zip(("publish", "subscribe"), line.groups(), strict=True):
        rights[right] = [
            word.replace("<bus.prefix>", settings.text("bus.prefix")).replace(
                "<bus.events_subject>", settings.text("bus.events_subject")
            )
            for word in re.findall(r"`(.*?)`", listed)
        ]
    config = f"authorization {{ users: [ {{ user: a, password: a, permissions: {json.dumps(rights)} }} ] }}"
    with running_nats(config=config) as server:
        settings = settings.replaced(bus__url=server.url.replace("//", "//a:a@"))
        async with opened(settings) as a, opened(settings) as b:
            assert a.bus.topic is not None
            await a.bus.topic.publish(Message(f"{settings.text('bus.events_subject')}.step.done", "1-1", {}, b"{}"))
            b.bus.waiting({"default"})
            a.bus.notify(Notice(moved=((1, 1),), offered=(("default", 1),)))
            await b.until(lambda ear: ear.heads and ear.pools)


# -- topic -----------------------------------------------------------------------------------------------------------------


async def test_the_events_of_another_cluster_are_not_mixed_with_ours(nats_server: NatsServer) -> None:
    ours = settings_for(nats_server.url)
    theirs = ours.replaced(bus__prefix=uuid.uuid4().hex[:12])
    message = Message(f"{ours.text('bus.events_subject')}.step.done", "1-1", {}, b"{}")
    async with opened(ours) as a, opened(theirs) as b:
        assert a.bus.topic is not None
        assert b.bus.topic is not None
        await a.bus.topic.publish(message)
        with pytest.raises(BusUnavailable, match=r"another stream.*ARCLOG_BUS_EVENTS_SUBJECT"):
            await b.bus.topic.publish(message)
        assert b.bus.figures().connected


async def test_a_stream_of_the_operators_own_that_lacks_the_subjects_is_named(nats_server: NatsServer) -> None:
    settings = settings_for(nats_server.url)
    name, subject = settings.text("bus.prefix"), settings.text("bus.events_subject")
    client, stream = await Cluster(settings).connect(5.0)
    await stream.add_stream(name=f"{name}-events", subjects=[f"{name}.other"])
    async with opened(settings) as ear:
        assert ear.bus.topic is not None
        with pytest.raises(BusUnavailable, match=f"no stream takes {subject}.>: {name}-events .* does not have"):
            await ear.bus.topic.publish(Message(f"{subject}.step.done", "1-1", {}, b"{}"))
    await client.close()


async def test_a_connection_leaves_no_task_behind_however_it_ends(monkeypatch):
    """One that is closed while NATS takes nothing: nats-py stops in the middle of it."""
    monkeypatch.setattr("arclog.drivers.nats.connect._CLOSE_S", 0.1)
    with running_nats() as server:
        before = asyncio.all_tasks()
        client, _ = await Cluster(Settings({"bus.url": server.url})).connect(5.0)

        async def heard(_: object) -> None: ...

        await client.subscribe("something", cb=heard)
        await client.flush()
        server.freeze()
        assert client._transport is not None
        client._transport.write(bytes(16 << 20))  # more than the sockets take
        for _ in range(2):  # the first one waits to be written, the second one to be looked at
            await client.publish("something")
            await asyncio.sleep(0)
        await client.close()
        assert asyncio.all_tasks() == before
