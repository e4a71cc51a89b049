"""A mail server for tests: takes what it is sent, in a thread of its own, and keeps it.

with Mail() as mail:
    ... mail.port ... mail.messages
"""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from email.message import EmailMessage
from typing import Self


class _Session(socketserver.StreamRequestHandler):
    """Enough of RFC 5321 for a client that behaves."""

    def handle(self) -> None:
        mail: Mail = self.server.mail  # type: ignore[attr-defined]  # set by Mail
        self._reply("220 tests")
        to: list[str] = []
        while line := self.rfile.readline().decode().strip():
            word = line.split(" ", 1)[0].upper()
            if word in ("EHLO", "HELO"):
                self._reply("250-tests", "250 8BITMIME")
            elif word == "RCPT":
                to.append(line.partition("<")[2].partition(">")[0])
                self._reply("250 ok")
            elif word == "DATA":
                if mail.refusals:
                    mail.refusals -= 1
                    self._reply("451 not now")
                    continue
                self._reply("354 go on")
                lines: list[bytes] = []
                while (part := self.rfile.readline()) not in (b".\r\n", b""):
                    lines.append(part.removeprefix(b".") if part.startswith(b"..") else part)
                policy = email.policy.default
                mail.messages.append(email.message_from_bytes(b"".join(lines), policy=policy))
                mail.recipients.append(to)
                to = []
                self._reply("250 taken")
            elif word == "QUIT":
                self._reply("221 bye")
                return
            else:
                self._reply("250 ok")

    def _reply(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


class Mail:
    def __init__(self) -> None:
        self.messages: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        #: how many messages it does not take before it takes one
        self.refusals = 0
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Session)
        self._server.daemon_threads = True
        self._server.mail = self  # type: ignore[attr-defined]  # what its sessions write to
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
