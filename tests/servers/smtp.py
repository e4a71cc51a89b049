"""A mail server for tests: SMTP with STARTTLS, TLS from the first byte, and logins, over asyncio in a thread."""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.servers.certs import Certificate


class MailServer:
    """Takes messages on 127.0.0.1. `tls`: starttls, tls or none; with `login`, only after that user and password."""

    def __init__(
        self, tls: str = "none", certificate: Certificate | None = None, login: tuple[str, str] | None = None
    ) -> None:
        self.messages: list[bytes] = []
        #: what clients signed in with
        self.logins: list[tuple[str, str]] = []
        #: whether the connection was encrypted when the login came
        self.encrypted: list[bool] = []
        self.port = 0
        self._tls, self._login = tls, login
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate.chain, certificate.key)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mail-server")
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> None:
        context = self._context if self._tls == "tls" else None
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            await self._talk(reader, writer)
        writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def answer(*lines: str) -> None:
            for line in lines[:-1]:
                writer.write(f"{line[:3]}-{line[4:]}\r\n".encode())
            writer.write(f"{lines[-1]}\r\n".encode())
            await writer.drain()

        await answer("220 test")
        encrypted = self._tls == "tls"
        while line := (await reader.readline()).decode().strip():
            word, _, rest = line.partition(" ")
            match word.upper():
                case "EHLO" | "HELO":
                    offers = ["250 STARTTLS"] if self._tls == "starttls" and not encrypted else []
                    await answer("250 test", *offers, "250 AUTH PLAIN")
                case "STARTTLS":
                    await answer("220 go on")
                    await writer.start_tls(self._context)  # type: ignore[arg-type]  # there is one with starttls
                    encrypted = True
                case "AUTH":
                    _, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
                    self.logins.append((user, password))
                    self.encrypted.append(encrypted)
                    # Some servers repeat what they were sent.
                    good = (user, password) == self._login
                    await answer("235 welcome" if good else f"535 no such login: {rest} {password}")
                case "DATA":
                    await answer("354 go on")
                    body = await reader.readuntil(b"\r\n.\r\n")
                    self.messages.append(body)
                    await answer("250 taken")
                case "QUIT":
                    await answer("221 bye")
                    return
                case _:
                    await answer("250 fine")
