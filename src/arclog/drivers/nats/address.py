"""Addresses of NATS servers and the login for them, parsed and shown without secrets.

Invariant: a message contains at most scheme, host and port of an address, and only if they were parsed unambiguously.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct

PORT = 4222
SCHEMES = ("nats", "tls")
#: The syntax of an address, for messages.
FORM = "nats://host:4222 or tls://host:4222"

_JWT = re.compile(r"-----BEGIN NATS USER JWT-----\s*(\S+)\s*-+END NATS USER JWT-+")
_SEED = re.compile(r"-----BEGIN USER NKEY SEED-----\s*(\S+)\s*-+END USER NKEY SEED-+")
#: A query before an @; the text after it may be the rest of a password.
_QUERY = re.compile(r"\?\w+=")


class AddressError(ValueError):
    """An invalid address or login. The message has the reason and no part of the address."""


class Server(Struct, frozen=True):
    """The address of one server."""

    host: str
    port: int
    #: send nothing before the connection is encrypted
    encrypted: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.encrypted else 'nats'}://{host}:{self.port}"


class Login(Struct, frozen=True):
    """Credentials for a server. All fields are empty for an anonymous login."""

    jwt: str = ""
    #: an NKEY, with which this process signs the server's challenges; it is never sent
    seed: str = ""
    user: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return "Login(…)"

    def options(self) -> dict[str, Any]:
        """Return the login as options of nats-py. Raises AddressError."""
        options = {
            name: text for name in ("user", "password", "token") if (text := getattr(self, name)) or name == "password"
        }
        if not self.user:
            del options["password"]
        if not self.seed:
            return options
        pair = _key_pair(self.seed)
        if not self.jwt:
            return {**options, "nkeys_seed_str": self.seed}
        import base64

        return {
            **options,
            "user_jwt_cb": lambda: bytearray(self.jwt.encode()),
            "signature_cb": lambda nonce: base64.b64encode(pair.sign(nonce.encode())),
        }


def servers_of(text: str) -> tuple[tuple[Server, ...], Login]:
    """Return the servers of one or several addresses, separated by commas, and the login. Raises AddressError."""
    servers: list[Server] = []
    login = Login()
    scheme = "nats"
    for part in text.split(","):
        remainder = part.strip()
        if "://" in remainder.partition("@")[0]:
            scheme, remainder = remainder.split("://", 1)
        if scheme not in SCHEMES:
            raise AddressError(f"it is not an address of a NATS server; give {FORM}")
        written, at, where = remainder.rpartition("@")
        if at and servers and login == Login():
            # Otherwise the first part of a password with a comma would be parsed as a server, and shown.
            raise AddressError("credentials must be in the first of several addresses (a comma in a password is %2C)")
        if at:
            login = _login(written)
        servers.append(_server(where, encrypted=scheme == "tls"))
    if len({server.encrypted for server in servers}) > 1:
        raise AddressError("nats:// and tls:// are mixed; use one of them for all servers")
    return tuple(servers), login


def _server(text: str, *, encrypted: bool) -> Server:
    wrong = AddressError(
        f"it is not an address of a NATS server; give {FORM}, several separated by commas, with credentials as "
        "nats://user:password@host:4222 (special characters percent-encoded)"
    )
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if not host or parts.path.strip("/") or parts.query or parts.fragment:
        raise wrong
    return Server(host, port or PORT, encrypted)


def _login(text: str) -> Login:
    if _QUERY.search(text):
        raise AddressError("there is a ?name= before an @; write ? in a password as %3F and @ as %40")
    user, colon, password = text.partition(":")
    return Login(user=unquote(user), password=unquote(password)) if colon else Login(token=unquote(user))


def creds_login(text: str) -> Login:
    """Return the login of a .creds file. Raises AddressError."""
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if jwt is None or seed is None:
        raise AddressError("is not a .creds file: it must contain a NATS USER JWT and a USER NKEY SEED")
    return Login(jwt=jwt[1], seed=seed[1])


def _key_pair(seed: str) -> Any:
    import nkeys  # type: ignore[import-untyped]  # it has no types

    try:
        pair = nkeys.from_seed(bytearray(seed.encode()))
        pair.public_key.decode()
    except Exception:  # noqa: BLE001 - each sort of bad seed raises something of its own, and may show it
        raise AddressError("the seed is not an NKEY of a user (SU…)") from None
    return pair
