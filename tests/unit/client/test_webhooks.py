"""The receiver's check: none, stale, replayed, altered, and what cannot be told."""

from __future__ import annotations

import pytest

from arclog.client.webhooks import Seen, WebhookRefused, verify
from arclog.model.config.webhooks import DELIVERY, SIGNATURE, TIMESTAMP, signature

SECRET, BODY, NOW = "s3cret", b'{"event": "playbook.completed"}', 1_800_000_000


def signed(body: bytes = BODY, *, at: int = NOW, delivery: str = "7-1", secret: str = SECRET) -> dict[str, str]:
    stamp = str(at)
    return {"Arclog-Timestamp": stamp, DELIVERY: delivery, SIGNATURE: signature(secret, stamp, delivery, body)}


def test_what_was_signed_just_now_is_taken() -> None:
    assert verify(SECRET, signed(), BODY, seen=Seen(), now=NOW + 299) == {
        "event": "playbook.completed",
        "delivery": "7-1",
    }


def test_the_signature_is_what_the_documentation_says() -> None:
    import hashlib
    import hmac

    expected = hmac.new(b"s3cret", b"v1.1800000000.7-1." + BODY, hashlib.sha256).hexdigest()
    assert signed()[SIGNATURE] == f"v1={expected}"


@pytest.mark.parametrize("lacking", ["Arclog-Timestamp", DELIVERY, SIGNATURE])
def test_none(lacking: str) -> None:
    headers = signed()
    del headers[lacking]
    with pytest.raises(WebhookRefused, match="not signed"):
        verify(SECRET, headers, BODY, seen=Seen(), now=NOW)


@pytest.mark.parametrize("late", [301, -301, 10**9])
def test_stale(late: int) -> None:
    with pytest.raises(WebhookRefused, match="within the last 300 s"):
        verify(SECRET, signed(), BODY, seen=Seen(), now=NOW + late)


@pytest.mark.parametrize("stamp", ["soon", "-5", "1e9", "１８", " 1800000000"])
def test_a_timestamp_that_is_none_is_refused_though_it_was_signed(stamp: str) -> None:
    headers = {TIMESTAMP: stamp, DELIVERY: "7-1", SIGNATURE: signature(SECRET, stamp, "7-1", BODY)}
    with pytest.raises(WebhookRefused):
        verify(SECRET, headers, BODY, seen=Seen(), now=NOW)


def test_replayed() -> None:
    seen = Seen()
    verify(SECRET, signed(), BODY, seen=seen, now=NOW)
    for later in (0, 100, 300):
        with pytest.raises(WebhookRefused, match="already"):
            verify(SECRET, signed(), BODY, seen=seen, now=NOW + later)
    # The sender's own second attempt has a new timestamp and the same delivery.
    assert verify(SECRET, signed(at=NOW + 5), BODY, seen=seen, now=NOW + 5)["delivery"] == "7-1"


def test_a_request_from_a_clock_that_is_ahead_cannot_be_replayed_either() -> None:
    seen = Seen()
    verify(SECRET, signed(at=NOW + 299), BODY, seen=seen, now=NOW)
    with pytest.raises(WebhookRefused, match="already"):
        verify(SECRET, signed(at=NOW + 299), BODY, seen=seen, now=NOW + 590)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (signed(), BODY + b" "),
        (signed(), b""),
        ({**signed(), DELIVERY: "7-2"}, BODY),
        ({**signed(), "Arclog-Timestamp": str(NOW + 1)}, BODY),
        (signed(secret="other"), BODY),
        ({**signed(), SIGNATURE: "v1="}, BODY),
        ({**signed(), SIGNATURE: "ü"}, BODY),
        ({**signed(), SIGNATURE: signed()[SIGNATURE].replace("v1", "v0")}, BODY),
    ],
)
def test_altered(headers: dict[str, str], body: bytes) -> None:
    seen = Seen()
    with pytest.raises(WebhookRefused, match="signature"):
        verify(SECRET, headers, body, seen=seen, now=NOW)
    verify(SECRET, signed(), BODY, seen=seen, now=NOW)  # a refused one does not block the true one


def test_closed_on_doubt() -> None:
    with pytest.raises(WebhookRefused, match="no secret"):
        verify("", signed(secret=""), BODY, seen=Seen(), now=NOW)
    with pytest.raises(WebhookRefused, match="JSON"):
        verify(SECRET, signed(b"[]"), b"[]", seen=Seen(), now=NOW)
    full = Seen(most=1)
    verify(SECRET, signed(), BODY, seen=full, now=NOW)
    with pytest.raises(WebhookRefused, match="more than 1"):
        verify(SECRET, signed(delivery="8-1"), BODY, seen=full, now=NOW)
    verify(SECRET, signed(delivery="8-1", at=NOW + 601), BODY, seen=full, now=NOW + 601)  # what is too old is forgotten
