"""A connection to NATS by the settings `bus.…`, for whoever needs one of its own. It ends when it is lost."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext

from arclog.model.errors import ServerUnavailable, SettingsError
from arclog.model.settings import Settings

_CLOSE_S = 1.0


class Connection(Client):
    """nats-py's client, which does not reconnect, and says when it is over."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    async def close(self) -> None:
        """Whatever state it is in."""
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_S):
                await super().close()
        # A close that failed on the way has left the socket open.
        if self._transport is not None:
            with suppress(Exception):
                self._transport.close()  # type: ignore[no-untyped-call]  # not typed there


def servers_of(settings: Settings) -> list[str]:
    return [each.strip() for each in settings.text("bus.url").split(",") if each.strip()]


def shown(settings: Settings) -> str:
    """The servers without their credentials."""
    urls = [each if "://" in each else f"nats://{each}" for each in servers_of(settings)]
    return ", ".join(urlsplit(each).netloc.rpartition("@")[2] for each in urls)


async def connect(settings: Settings, timeout_s: float) -> tuple[Connection, JetStreamContext]:
    """Raises SettingsError where trying again would lead to the same, else ServerUnavailable."""
    client = Connection()
    last: Exception | None = None

    async def over() -> None:
        client.over.set()

    async def failed(problem: Exception) -> None:
        nonlocal last
        last = problem

    try:
        async with asyncio.timeout(timeout_s * 2):
            await client.connect(
                servers_of(settings),
                name="arclog results",
                error_cb=failed,
                closed_cb=over,
                allow_reconnect=False,
                # The first failure is the last; 0 would mean for ever.
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=max(1, round(timeout_s)),
                **_credentials(settings),
            )
    except (nats.errors.Error, OSError, TimeoutError) as problem:
        await client.close()
        said = f"{type(last or problem).__name__}: {last or problem}"
        if "authorization" in said.lower():
            raise SettingsError(
                f"NATS {shown(settings)} refuses our credentials; look at ARCLOG_BUS_URL and the settings bus.…"
            ) from None
        raise ServerUnavailable(f"{said}; look whether NATS runs") from None
    return client, client.jetstream(timeout=timeout_s)


def _credentials(settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {}
    authority, certificate = settings.text("bus.ca_file"), settings.text("bus.cert_file")
    if authority or certificate:
        try:
            context = ssl.create_default_context()
            if authority:
                context.load_verify_locations(authority)
            if certificate:
                context.load_cert_chain(certificate, settings.text("bus.key_file") or None)
        except OSError as problem:
            raise SettingsError(
                f"the certificates for NATS cannot be used ({problem.strerror or problem}); look at bus.ca_file, "
                "bus.cert_file and bus.key_file"
            ) from problem
        options["tls"] = context
    if settings.text("bus.creds_file"):
        options["user_credentials"] = settings.text("bus.creds_file")
    if settings.text("bus.nkey_file"):
        options["nkeys_seed"] = settings.text("bus.nkey_file")
    return options
