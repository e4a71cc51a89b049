"""No address of any backend shows its password, however it is misspelt: in messages, tracebacks or the doctor's findings."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from arclog.buses.postgres import PostgresBus
from arclog.client.connection import checked_urls
from arclog.drivers.addresses import shown
from arclog.drivers.http.client import _proxy, target_of
from arclog.drivers.http.guard import Guard
from arclog.drivers.nats.cluster import Cluster
from arclog.engine.duties.doctor import examined
from arclog.model.config.settings import Settings
from arclog.results.blobs.object import address_of as object_address
from arclog.results.blobs.postgres import PgConnection
from arclog.server.auth.tokens import KeySet
from arclog.stores.postgres import checks as store_checks
from arclog.stores.postgres.connection.connect import address_of as store_address
from arclog.tools.object.location import check_endpoint
from arclog.tools.sql.postgres_servers import PostgresServers
from arclog.wiring.backends import choose_results, choose_store
from arclog.wiring.clocks import SystemClock
from arclog.wiring.doctor import backend_probes

#: Two halves, so that a message with one of them is found, too; digits alone can be taken for a port.
CANARY = ("canary", "4711", "yranac")
PASSWORDS = [
    "".join(CANARY),
    *(f"canary{sign}yranac" for sign in ("/", "@", "#", "?", ":", "%", "%zz", "%00", "%e2", "&", "=", ",", " ", "\\", "'", "[", "]")),
    *(f"4711{sign}yranac" for sign in ("/", "?", "#", ",", "@")),
    "canary[::1]yranac",
    "canary℀yranac",  # urlsplit refuses it with the whole text
    "canary\udcffyranac",
    "/canary", "@canary@", "%", "canary://yranac", "canary yranac=x", "canary'yranac", "\tcanary\n",
]  # fmt: skip
URLS = ["{scheme}://user:{password}@127.0.0.1:1/db", "{scheme}://user:{password}@"]
#: A token in the place of a user. PostgreSQL knows none: there it is a user, whose name is shown.
TOKENS = ["{scheme}://{password}@127.0.0.1:1/db", "{scheme}://{password}@127.0.0.1:1"]
QUERIES = ["{scheme}://127.0.0.1:1/db?password={password}", "{scheme}://127.0.0.1:1?password={password}"]
#: What PostgreSQL knows beside that: several hosts, a key's password, options of the session.
POSTGRES = [
    "{scheme}://user:{password}@127.0.0.1:1,127.0.0.1:2/db?target_session_attrs=any",
    "{scheme}://user@127.0.0.1:1/db?sslkey=/nowhere&sslpassword={password}",
    "{scheme}://user:{password}@127.0.0.1:1/db?options=-c%20x.y%3D1",
    "{scheme}://user@127.0.0.1:1/db?options=-c%20x.y%3D{password}",
]
PAIRS = [
    "host=127.0.0.1 port=1 user=u password={password}",
    "host=127.0.0.1,127.0.0.2 port=1,2 user=u password='{password}' sslpassword={password}",
    "host=127.0.0.1 port=1 user=u options='-c x.y={password}'",
    "password={password}",
    "password='{password}",
]


def texts(scheme: str, *forms: str) -> list[str]:
    return [form.format(scheme=scheme, password=password) for form in forms for password in PASSWORDS]


def assert_hidden(text: str, address: str) -> None:
    """Nothing of the password is in the text. The place of an object in memory may have the same digits by chance."""
    text = re.sub(r" at 0x[0-9a-f]+>", ">", text)
    for part in CANARY:
        assert part not in text, f"{address!r} is shown: {text}"


async def message_of(read: Callable[[str], Any], address: str) -> str:
    """What comes out: the message and the whole traceback of a refusal, or how the address is shown."""
    try:
        made = read(address)
        if isinstance(made, Awaitable):
            made = await made
        return f"{made!r} {made}" if made is not None else ""
    except Exception as problem:
        refused = problem
    if not type(refused).__module__.startswith("arclog"):
        pytest.fail(f"{type(refused).__name__} for {address!r}")
    return "".join(traceback.format_exception(refused))


def settings(**values: Any) -> Settings:
    return Settings({name.replace("__", "."): value for name, value in values.items()})


def store(url: str) -> Any:
    made: Any = choose_store(settings(store__url=url), SystemClock())
    return made.place


async def doctor(**values: Any) -> str:
    patient = settings(store__patience_s=0.0, store__connect_timeout_s=1.0, bus__connect_timeout_s=0.5, **values)
    probes = [probe for probe in backend_probes(patient) if probe[0] in ("store", "bus")]
    return repr(await examined(probes, 5.0))


def _refused(read: Callable[[str], Any], address: str) -> None:
    """What it refuses; an @ in a path is nothing special to the web, so what it takes may be anything."""
    read(address)


READERS: dict[str, tuple[Callable[[str], Any], list[str]]] = {
    "store": (store, texts("postgresql", *URLS, *QUERIES, *POSTGRES, *PAIRS)),
    "store address": (
        lambda url: store_address(url, Settings()).place,
        texts("postgres", *URLS, *QUERIES, *POSTGRES, *PAIRS),
    ),
    "bus on PostgreSQL": (
        lambda url: repr(PostgresBus(settings(store__listen_url=url))._address),
        texts("postgresql", *URLS, *QUERIES, *POSTGRES, *PAIRS),
    ),
    "results on PostgreSQL": (
        lambda url: PgConnection(url, Settings()).place,
        texts("postgresql", *URLS, *QUERIES, *POSTGRES),
    ),
    "results": (lambda url: repr(choose_results(settings(results__url=url))), texts("s3", *URLS) + texts("x", *URLS)),
    "results in a bucket": (lambda url: object_address(url).shown, texts("s3", *URLS, *QUERIES)),
    "bus on NATS": (lambda url: str(Cluster(settings(bus__url=url))), texts("nats", *URLS, *TOKENS, *QUERIES)),
    "bus without a scheme": (
        lambda url: str(Cluster(settings(bus__url=url))),
        [text.partition("://")[2] for text in texts("nats", *URLS, *TOKENS)],
    ),
    "servers": (checked_urls, texts("http", *URLS, *TOKENS) + texts("x", *URLS)),
    "token issuer": (
        lambda url: KeySet(settings(auth__jwt_keys=url), SystemClock())._shown,
        texts("https", *URLS, *TOKENS, *QUERIES),
    ),
    "proxy": (lambda url: repr(_proxy(url).url), texts("http", *URLS, *TOKENS) + texts("x", *URLS)),
    "endpoint of a bucket": (
        lambda url: check_endpoint(url, Guard("loopback"), allow_http=True, proxied=False),
        texts("http", *URLS, *TOKENS),
    ),
    "webhook or http task": (lambda url: _refused(target_of, url), texts("http", *URLS)),
    "any address": (shown, texts("https", *URLS, *TOKENS, *QUERIES)),
}


@pytest.mark.parametrize("name", READERS)
async def test_no_message_shows_a_password(name: str) -> None:
    read, addresses = READERS[name]
    for address in addresses:
        assert_hidden(await message_of(read, address), address)


async def test_tasks_show_no_password() -> None:
    for dsn in texts("postgresql", *URLS, *QUERIES, *POSTGRES, *PAIRS):
        try:
            PostgresServers(Settings()).address({"dsn": dsn})
        except Exception as problem:
            assert_hidden("".join(traceback.format_exception(problem)), dsn)


@pytest.mark.parametrize("password", PASSWORDS)
async def test_the_doctor_shows_no_password(password: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for url in (URLS[0], QUERIES[0], PAIRS[0]):
            address = url.format(scheme="postgresql", password=password)
            assert_hidden(await doctor(store__url=address), address)
        assert_hidden(await doctor(bus__url=URLS[0].format(scheme="nats", password=password)), "x://u:p@")
    assert_hidden(caplog.text, "x://u:p@")


async def test_what_the_server_says_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://u:canary%2Fyranac@127.0.0.1:1/d?sslpassword=4711"
    with pytest.raises(Exception, match=r"127\.0\.0\.1") as caught:
        await store_checks.checks(url, Settings())
    assert_hidden("".join(traceback.format_exception(caught.value)), "x://u:p@")
