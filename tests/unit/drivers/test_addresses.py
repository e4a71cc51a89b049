"""No address of any backend shows its password, however it is misspelt: in messages, tracebacks or the doctor's findings."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from arclog.buses.nats_address import address_of as nats_address
from arclog.buses.postgres import PostgresBus
from arclog.client.connection import checked_urls
from arclog.drivers.addresses import HIDDEN, secrets_of, shown, without_logins
from arclog.drivers.http.client import _proxy
from arclog.drivers.http.guard import Guard
from arclog.drivers.http.target import target_of
from arclog.drivers.postgres.address import AddressError, address_of
from arclog.engine.duties.health_checks import examined
from arclog.model.config.settings import Settings
from arclog.results.object.bucket import address_of as object_address
from arclog.results.postgres.connections import PgLink
from arclog.server.auth.keysets import KeySet
from arclog.stores.postgres import checks as store_checks
from arclog.stores.postgres.connection.connect import address_of as store_address
from arclog.tools.object.endpoint import check_endpoint
from arclog.tools.sql.pg_pool import conninfo_of
from arclog.wiring.backends import choose_results, choose_store
from arclog.wiring.clocks.machine import SystemClock
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
QUERIES = ["{scheme}://127.0.0.1:1/db?password={password}", "{scheme}://127.0.0.1:1?{password}"]
PAIRS = ["host=127.0.0.1 port=1 user=u password={password}", "password={password}", "password='{password}"]


def texts(scheme: str, *forms: str) -> list[str]:
    return [
        form.format(scheme=scheme, password=password)
        for form in forms
        for password in PASSWORDS
        # libpq and NATS take what stands before such an @ for a login, and what follows for the host.
        if not (form in QUERIES and "@" in password)
    ]


def assert_hidden(text: str, address: str) -> None:
    """Nothing of the password is in the text."""
    for part in CANARY:
        assert part not in text, f"{address!r} is shown: {text}"


async def said(read: Callable[[str], Any], address: str) -> str:
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
    return repr(await examined(backend_probes(patient), 5.0))


def _refused(read: Callable[[str], Any], address: str) -> None:
    """What it refuses; an @ in a path is nothing special to the web, so what it takes may be anything."""
    read(address)


READERS: dict[str, tuple[Callable[[str], Any], list[str]]] = {
    "store": (store, texts("postgresql", *URLS, *QUERIES, *PAIRS)),
    "store address": (lambda url: store_address(url, Settings()).place, texts("postgres", *URLS, *QUERIES, *PAIRS)),
    "bus on PostgreSQL": (
        lambda url: repr(PostgresBus(settings(store__listen_url=url))),
        texts("postgresql", *URLS, *QUERIES, *PAIRS),
    ),
    "results on PostgreSQL": (lambda url: PgLink(url, Settings()).place, texts("postgresql", *URLS, *QUERIES)),
    "results": (lambda url: repr(choose_results(settings(results__url=url))), texts("s3", *URLS) + texts("x", *URLS)),
    "results in a bucket": (lambda url: object_address(url).shown, texts("s3", *URLS, *QUERIES)),
    "bus on NATS": (lambda url: str(nats_address(settings(bus__url=url))), texts("nats", *URLS, *TOKENS, *QUERIES)),
    "bus without a scheme": (
        lambda url: str(nats_address(settings(bus__url=url))),
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
        assert_hidden(await said(read, address), address)


async def test_tasks_show_no_password() -> None:
    for dsn in texts("postgresql", *URLS, *QUERIES, *PAIRS):
        try:
            conninfo_of({"dsn": dsn}, 1.0)
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


# -- what is read ------------------------------------------------------------------------------------------------------

texts_of = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12)


@given(user=texts_of, password=texts_of, database=texts_of)
def test_an_encoded_address_is_read_as_libpq_reads_it(user: str, password: str, database: str) -> None:
    parts = [quote(part, safe="") for part in (user, password, database)]
    url = f"postgresql://{parts[0]}:{parts[1]}@[::1]:5433,h2:5434/{parts[2]}?application_name={parts[0]}&sslmode=prefer"
    found = address_of(url)
    assert found.parts == conninfo_to_dict(url)
    assert conninfo_to_dict(found.conninfo()) == found.parts


@given(values=st.dictionaries(st.sampled_from(["host", "user", "password", "dbname"]), texts_of, min_size=1))
def test_keywords_are_read_as_libpq_reads_them(values: dict[str, str]) -> None:
    text = " ".join(
        "{}='{}'".format(key, value.replace("\\", "\\\\").replace("'", "\\'")) for key, value in values.items()
    )
    if "@" in values.get("host", ""):
        with pytest.raises(AddressError):
            address_of(text)
        return
    assert address_of(text).parts == conninfo_to_dict(text)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("postgresql:///d", {"dbname": "d"}),
        ("postgresql://", None),
        ("postgresql://h", {"host": "h"}),
        ("postgresql://u:p?x#y@h/d", {"user": "u", "password": "p?x#y", "host": "h", "dbname": "d"}),
        ("postgresql://%2Ftmp%2Fsocket/d", {"host": "/tmp/socket", "dbname": "d"}),
        ("postgres://h/d?host=/tmp&ssl=true", {"host": "/tmp", "dbname": "d", "sslmode": "require"}),
    ],
)
def test_forms_of_addresses(url: str, parts: dict[str, str] | None) -> None:
    found = address_of(url).parts
    assert found == (parts or {})
    if "#" not in url:
        assert found == conninfo_to_dict(url)


def test_what_goes_before_what() -> None:
    address = address_of("host=a connect_timeout=3 password='x y'", port=5433, user=None)
    assert conninfo_to_dict(address.conninfo({"connect_timeout": 1, "keepalives": 1}, application_name="n")) == {
        "host": "a", "connect_timeout": "3", "password": "x y", "port": "5433", "keepalives": "1", "application_name": "n",
    }  # fmt: skip
    assert repr(address) == "PostgresAddress(postgresql://a:5433/)"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://u:p/w@h/d", "percent-encoded"),
        ("postgresql://u:p@w@h/d", "@ as %40"),
        ("postgresql://u:50%@h/d", "write % as %25"),
        ("postgresql://h:port/d", "the port is not a number"),
        ("postgresql://h/d?nonsense=1", "a keyword that PostgreSQL does not know"),
        ("postgresql://h/d?nonsense", "key=value"),
        ("not an address", "neither postgresql://"),
        ("", "it is empty"),
    ],
)
def test_an_address_that_cannot_be_read_says_why(url: str, message: str) -> None:
    with pytest.raises(AddressError, match=message):
        address_of(url)


def test_what_is_shown_of_an_address() -> None:
    assert shown("https://u:p@hooks.example.com:8443/T0/secret?x=1#y") == "https://hooks.example.com:8443"
    assert shown("nats://[::1]:4222") == "nats://[::1]:4222"
    assert shown("host:80/path") == "host:80"
    assert shown("http://u:12/34@host") == HIDDEN
    assert shown("") == HIDDEN


def test_secrets_of_an_address() -> None:
    assert {"u:p%40", "u", "p%40", "p@", "t%20k", "t k"} <= set(secrets_of("http://u:p%40@h/v1?token=t%20k"))
    assert secrets_of("http://h/v1/traces") == []


def test_texts_of_other_programs_lose_their_logins() -> None:
    said = "error: http://u:ca@nary/x@pypi.example/simple and 'https://token@h/y' gave 401, see https://h/z"
    assert without_logins(said) == "error: http://…@pypi.example/simple and 'https://…@h/y' gave 401, see https://h/z"
