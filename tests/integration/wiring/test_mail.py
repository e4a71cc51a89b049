"""E-mails to a real mail server: STARTTLS, TLS, logins; what goes wrong is said in words and holds no password."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.wiring.senders.mail import MailSender
from tests.servers.certs import Certificate, certificate
from tests.servers.smtp import MailServer

PASSWORD = "sesame-4711"
NEWS = json.dumps({"name": "orders", "state": "FAILED", "execution_id": "7", "path": "flows/orders"}).encode()


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    return file


def settings(server: MailServer, **more: Any) -> dict[str, Any]:
    return {"smtp.host": "127.0.0.1", "smtp.port": server.port, "smtp.timeout_s": 5.0, **more}


async def sent(given: dict[str, Any]) -> str:
    return await MailSender(Settings(given)).send("mailto:ops@example.org", NEWS, "1-1")


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_an_e_mail_goes_encrypted_and_with_a_login(security: str, signed: Certificate, secret: Path) -> None:
    with MailServer(security, signed, ("ada", PASSWORD)) as server:
        values = settings(server, **{"smtp.security": security, "http.ca_file": str(signed.authority)})
        values |= {"smtp.username": "ada", "smtp.password_file": str(secret)}
        assert await sent(values) == ""
    assert server.logins == [("ada", PASSWORD)]
    assert server.encrypted == [True]
    (message,) = server.messages
    assert b"Subject: orders: failed" in message


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    caplog.set_level(logging.DEBUG)
    yield caplog
    assert PASSWORD not in caplog.text


async def test_a_refused_login_says_so_and_repeats_nothing(
    signed: Certificate, secret: Path, quiet: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with MailServer("starttls", signed, ("ada", "another")) as server:
        values = settings(server, **{"http.ca_file": str(signed.authority)})
        answer = await sent(values | {"smtp.username": "ada", "smtp.password_file": str(secret)})
    assert answer.endswith("it refuses the login (535); look at smtp.username and smtp.password_file")
    assert f"127.0.0.1:{server.port}" in answer
    assert PASSWORD not in answer + "".join(capfd.readouterr())
    assert server.messages == []


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_a_certificate_that_nobody_signed(security: str, signed: Certificate, secret: Path) -> None:
    with MailServer(security, signed, ("ada", PASSWORD)) as server:
        values = settings(
            server, **{"smtp.security": security, "smtp.username": "ada", "smtp.password_file": str(secret)}
        )
        answer = await sent(values)
    assert "its certificate is not trusted: unable to get local issuer certificate" in answer
    assert "http.ca_file" in answer
    assert server.logins == [], "nothing is said to a server that may be another"


@pytest.mark.parametrize(("names", "expired", "words"), [(("mail.example.org",), False, "IP address mismatch"), ((), True, "expired")])  # fmt: skip
async def test_a_certificate_for_another_name_or_time(
    tmp_path: Path, names: tuple[str, ...], expired: bool, words: str
) -> None:
    wrong = certificate(tmp_path / "wrong", *names, expired=expired)
    with MailServer("starttls", wrong) as server:
        answer = await sent(settings(server, **{"http.ca_file": str(wrong.authority)}))
    assert "its certificate is not trusted" in answer
    assert words in answer


async def test_a_server_that_speaks_otherwise(signed: Certificate) -> None:
    with MailServer("none") as server:
        assert "STARTTLS extension not supported by server. (smtp.security" in await sent(settings(server))
        answer = await sent(settings(server, **{"smtp.security": "tls"}))
        assert "is smtp.security right for this port?" in answer
    with MailServer("tls", signed) as server:
        answer = await sent(settings(server, **{"smtp.timeout_s": 0.3}))
        assert "no answer in time" in answer or "is smtp.security right" in answer
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        answer = await sent({"smtp.host": "127.0.0.1", "smtp.port": closed.getsockname()[1]})
        assert "ConnectionRefusedError" in answer


async def test_settings_that_do_not_fit(tmp_path: Path, secret: Path) -> None:
    values = {"smtp.host": "mail.example.org", "smtp.security": "none", "smtp.username": "ada", "smtp.password_file": str(secret)}  # fmt: skip
    assert "unencrypted; set smtp.security to starttls or tls" in await sent(values)
    values |= {"smtp.security": "starttls", "smtp.password_file": str(tmp_path / "none")}
    assert "cannot be read: No such file or directory" in await sent(values)
    assert "smtp.password_file is not" in await sent(values | {"smtp.password_file": ""})


@pytest.mark.parametrize(
    ("allowed", "to", "goes"),
    [
        ("", "anybody@elsewhere.example", True),
        ("example.org", "ops@example.org", True),
        ("example.org", "OPS@Example.ORG", True),
        ("example.org", "ops@evil-example.org", False),
        ("example.org", "ops@sub.example.org", False),
        ("ops@example.org, x.example", "ops@example.org,a@x.example", True),
        ("ops@example.org", "ops@example.org,a@x.example", False),
    ],
)
async def test_e_mails_go_to_those_alone_whom_the_operator_allows(allowed: str, to: str, goes: bool) -> None:
    """Else whoever writes a playbook writes to anybody, in the operator's name."""
    with MailServer() as server:
        values = settings(server, **{"smtp.security": "none", "smtp.allow_recipients": allowed})
        problem = await MailSender(Settings(values)).send(f"mailto:{to}", NEWS, "1-1")
    assert (problem == "", len(server.messages)) == (goes, int(goes))
    assert goes or "smtp.allow_recipients" in problem
