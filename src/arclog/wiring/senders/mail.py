"""Sends notices of a run's end by e-mail, through the mail server in the settings (`smtp.…`)."""

from __future__ import annotations

import asyncio
import json
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Any

from arclog.drivers.addresses import is_loopback
from arclog.model.config.settings import Settings

SCHEME = "mailto:"
_FACTS = (
    ("run", "execution_id"),
    ("playbook", "path"),
    ("version", "version"),
    ("started", "started_at"),
    ("ended", "ended_at"),
)


class MailSender:
    """Sends one message for each delivery, over a new connection, since ends of runs are rare."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._timeout_s = settings.number("smtp.timeout_s")

    async def send(self, url: str, body: bytes, delivery: str) -> str:
        """Send the message. Returns '' if the mail server accepted it, else the error."""
        if not self._settings.text("smtp.host"):
            return "no mail server is set (smtp.host)"
        if refused := [address for address in url.removeprefix(SCHEME).split(",") if not self._is_allowed(address)]:
            return f"{refused[0]} is not an allowed recipient (smtp.allow_recipients)"
        try:
            message = as_message(json.loads(body), url.removeprefix(SCHEME), delivery, self._settings)
        except (ValueError, LookupError) as problem:  # an invalid header
            return f"the message cannot be written: {problem}"
        try:
            await asyncio.to_thread(self._deliver, message)
        except (smtplib.SMTPException, OSError) as problem:
            return (
                f"mail server {self._settings.text('smtp.host')}:{self._settings.integer('smtp.port')}: {_why(problem)}"
            )
        return ""

    def _is_allowed(self, recipient: str) -> bool:
        allowed = [address.strip().lower() for address in self._settings.text("smtp.allow_recipients").split(",")]
        address = recipient.strip().lower()
        return allowed == [""] or address in allowed or address.rpartition("@")[2] in allowed

    def _deliver(self, message: EmailMessage) -> None:
        settings = self._settings
        security, host, port = settings.text("smtp.security"), settings.text("smtp.host"), settings.integer("smtp.port")
        login = self._login(security, host)
        context = ssl.create_default_context() if security != "none" else None
        if context is not None and settings.text("http.ca_file"):
            context.load_verify_locations(settings.text("http.ca_file"))
        if security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=self._timeout_s, context=context)
        else:
            server = smtplib.SMTP(host, port, timeout=self._timeout_s)
        with server:
            if security == "starttls":
                server.starttls(context=context)
            if login is not None:
                server.login(*login)
            server.send_message(message)

    def _login(self, security: str, host: str) -> tuple[str, str] | None:
        """User name and password; None if no login is configured. Raises Refused."""
        user, file = self._settings.text("smtp.username"), self._settings.text("smtp.password_file")
        if not user:
            return None
        if security == "none" and not is_loopback(host):
            raise Refused("the password would go over the network unencrypted; set smtp.security to starttls or tls")
        if not file:
            raise Refused("smtp.username is set, and smtp.password_file is not")
        try:
            return user, Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
            raise Refused(f"smtp.password_file {file} cannot be read: {reason}") from None


class Refused(smtplib.SMTPException):
    """Nothing is sent, because of a setting."""


def _why(problem: Exception) -> str:
    """The error as text. The server's answer to a login is left out, since it may repeat the password."""
    match problem:
        case Refused():
            return str(problem)
        case smtplib.SMTPAuthenticationError():
            return f"it refuses the login ({problem.smtp_code}); look at smtp.username and smtp.password_file"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {problem.verify_message}; http.ca_file names further authorities"
        case ssl.SSLError():
            return f"no TLS connection ({problem.reason or problem}); is smtp.security right for this port?"
        case smtplib.SMTPNotSupportedError():
            return f"{problem} (smtp.security, smtp.username)"
        case TimeoutError():
            return "no answer in time (smtp.timeout_s)"
        case smtplib.SMTPServerDisconnected():
            return f"{problem}; is smtp.security right for this port?"
        case _:
            return f"{type(problem).__name__}: {problem}"


def as_message(news: dict[str, Any], to: str, delivery: str, settings: Settings) -> EmailMessage:
    """The content of a webhook as an e-mail for people."""
    sender = settings.text("smtp.sender") or f"arclog@{settings.text('smtp.host')}"
    message = EmailMessage()
    message["From"] = sender
    message["To"] = ", ".join(to.split(","))
    message["Subject"] = " ".join(f"{news['name']}: {str(news['state']).lower()}".split())
    message["Date"] = formatdate()
    # The same for every attempt, so that a mail server drops duplicates.
    message["Message-ID"] = f"<{delivery}@arclog.{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    lines = [f"{label}: {news[key]}" for label, key in _FACTS if news.get(key)]
    problem = news.get("error") or {}
    if problem:
        where = f" in step {problem['step']}" if problem.get("step") else ""
        lines += ["", f"error{where}: {problem.get('kind', '')}: {problem.get('message', '')}"]
    address = settings.text("server.public_url").rstrip("/")
    lines += ["", f"{address}/runs/{news['execution_id']}" if address else f"arclog show {news['execution_id']}"]
    message.set_content("\n".join(lines) + "\n")
    return message
