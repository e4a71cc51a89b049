"""Addresses of PostgreSQL are read as libpq reads them, or refused without repeating them."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from arclog.drivers.postgres.address import AddressError, address_of, configured_address
from arclog.model.errors import SettingsError

texts_of = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12)


@given(user=texts_of, password=texts_of, database=texts_of)
def test_an_encoded_address_is_read_as_libpq_reads_it(user: str, password: str, database: str) -> None:
    parts = [quote(part, safe="") for part in (user, password, database)]
    url = f"postgresql://{parts[0]}:{parts[1]}@[::1]:5433,h2:5434/{parts[2]}?application_name={parts[0]}&sslmode=prefer"
    address = address_of(url)
    assert address.parts == conninfo_to_dict(url)
    assert conninfo_to_dict(address.conninfo()) == address.parts


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
    parts_read = address_of(url).parts
    assert parts_read == (parts or {})
    if "#" not in url:
        assert parts_read == conninfo_to_dict(url)


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


def test_secrets_are_those_that_no_message_may_have() -> None:
    url = "postgresql://u:pw@h/d?sslpassword=key&sslmode=require"
    assert address_of(url).secrets() == {"pw": "password", "key": "sslpassword"}
    assert address_of("postgresql://postgres:postgres@h/d").secrets() == {}, "the user is shown in any case"


def test_a_setting_with_an_address_is_named() -> None:
    with pytest.raises(SettingsError, match=r"ARCLOG_STORE_URL cannot be read: .*%40"):
        configured_address("postgresql://u:p@w@h/d", "ARCLOG_STORE_URL")
