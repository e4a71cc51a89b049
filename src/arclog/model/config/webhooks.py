"""The signature of webhooks, for sender and receiver."""

from __future__ import annotations

#: seconds since 1970 at which this attempt was sent
TIMESTAMP = "arclog-timestamp"
#: the same for every attempt of one delivery, so that receivers can drop duplicates
DELIVERY = "arclog-delivery"
#: the lifecycle name of the event
EVENT = "arclog-event"
SIGNATURE = "arclog-signature"
VERSION = "v1"


def signature(secret: str, timestamp: str, delivery: str, body: bytes) -> str:
    """Return `v1=` and the HMAC-SHA256, in hex, of timestamp, delivery and the raw body."""
    import hashlib
    import hmac  # imported here: few runs have webhooks

    signed = f"{VERSION}.{timestamp}.{delivery}.".encode() + body
    return f"{VERSION}={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"
