"""How a webhook is signed: sender and receiver both use this, and nothing else decides what the signature covers."""

from __future__ import annotations

import hashlib
import hmac

#: seconds since 1970 at which this attempt was sent
TIMESTAMP = "arclog-timestamp"
#: the same for every attempt of one delivery: receivers drop what they have seen
DELIVERY = "arclog-delivery"
#: in lifecycle names
EVENT = "arclog-event"
SIGNATURE = "arclog-signature"
VERSION = "v1"


def signature(secret: str, timestamp: str, delivery: str, body: bytes) -> str:
    """`v1=` and the HMAC-SHA256, in hex, of timestamp, delivery and the raw body."""
    signed = f"{VERSION}.{timestamp}.{delivery}.".encode() + body
    return f"{VERSION}={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"
