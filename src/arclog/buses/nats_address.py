"""Where NATS is and who we are there, from the settings. What leaves this module to be shown holds no secret."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from arclog.model.config.settings import Settings, row_of
from arclog.model.errors import SettingsError

_PORT = 4222


class Address(Struct, frozen=True):
    """What a connection needs to know."""

    #: without credentials: nats://host:port
    servers: tuple[str, ...]
    #: nothing may be said before the connection is encrypted
    encrypted: bool
    #: further options of the client, secrets among them
    options: dict[str, Any]

    def __str__(self) -> str:
        return ", ".join(self.servers)


def address_of(settings: Settings) -> Address:
    """Raises SettingsError; never says a password."""
    servers: list[str] = []
    schemes: set[str] = set()
    options: dict[str, Any] = {}
    scheme = "nats"
    for part in settings.text("bus.url").split(","):
        text = part.strip()
        if "://" in text.partition("@")[0]:
            scheme, text = text.split("://", 1)
        if scheme not in ("nats", "tls"):
            raise SettingsError("ARCLOG_BUS_URL names no bus; give nats://host:4222 or tls://host:4222")
        user, at, where = text.rpartition("@")
        if at and servers and not options:
            # Else the first part of a password with a comma in it would be taken for a server, and shown.
            raise SettingsError(
                "ARCLOG_BUS_URL: credentials belong to the first of several addresses (write a comma in a password as %2C)"
            )
        if at:
            options = _login(user)
        try:
            parsed = urlsplit(f"//{where}")
            host, port = parsed.hostname, parsed.port
        except ValueError:
            host, port = None, None
        if not host or parsed.path.strip("/") or parsed.query or parsed.fragment:
            raise SettingsError(
                "ARCLOG_BUS_URL: not an address; use nats://host:4222, several separated by commas, with credentials as "
                "nats://user:password@host:4222 (special characters percent-encoded)"
            )
        shown = f"[{host}]" if ":" in host else host
        servers.append(f"{scheme}://{shown}:{port or _PORT}")
        schemes.add(scheme)
    if len(schemes) > 1:
        raise SettingsError("ARCLOG_BUS_URL: nats:// and tls:// are mixed; one of them, for all servers")
    return Address(tuple(servers), "tls" in schemes, {**options, **_files(settings, encrypted="tls" in schemes)})


def _login(text: str) -> dict[str, Any]:
    user, colon, password = text.partition(":")
    return {"user": unquote(user), "password": unquote(password)} if colon else {"token": unquote(user)}


def _files(settings: Settings, *, encrypted: bool) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, option in (("bus.creds_file", "user_credentials"), ("bus.nkey_file", "nkeys_seed")):
        if settings.text(name):
            path = _readable(settings, name)
            _check_seed(name, path)
            options[option] = str(path)
    authorities, chain = settings.text("bus.ca_file"), settings.text("bus.cert_file")
    if not encrypted and not authorities and not chain:
        return options
    context = ssl.create_default_context()
    if authorities:
        path = _readable(settings, "bus.ca_file")
        try:
            context.load_verify_locations(path)
        except (ssl.SSLError, OSError):
            raise SettingsError(f"ARCLOG_BUS_CA_FILE: {path} is not a PEM file of certificates") from None
    if chain:
        path = _readable(settings, "bus.cert_file")
        key = _readable(settings, "bus.key_file") if settings.text("bus.key_file") else None
        try:
            context.load_cert_chain(path, key)
        except (ssl.SSLError, OSError):
            raise SettingsError(
                f"ARCLOG_BUS_CERT_FILE: {path} and its key ({key or 'expected in the same file'}) cannot be used"
            ) from None
    options["tls"] = context
    return options


def _check_seed(name: str, path: Path) -> None:
    """nats-py would look forever for what a file does not have."""
    import nkeys  # type: ignore[import-untyped]  # it has no stubs

    text = path.read_bytes()
    if name == "bus.creds_file":
        found = re.search(
            rb"BEGIN NATS USER JWT[^\n]*\n[^\n]+\n.*BEGIN USER NKEY SEED[^\n]*\n\s*(\S+)", text, re.DOTALL
        )
        seed, what = (b"" if found is None else found[1]), "a credentials file: a user's JWT and NKEY seed"
    else:
        seed, what = text.strip(), "the file of an NKEY seed (SU…)"
    try:
        nkeys.from_seed(bytearray(seed)).wipe()
    except Exception:  # noqa: BLE001 - whatever is wrong with it, and never what it says
        raise SettingsError(f"{row_of(name).variable}: {path} is not {what}") from None


def _readable(settings: Settings, name: str) -> Path:
    path = Path(settings.text(name))
    try:
        with path.open("rb"):
            return path
    except OSError as problem:
        raise SettingsError(f"{row_of(name).variable}: {path}: {problem.strerror}") from None
