"""Verifies webhooks on the receiver's side: a request comes from arclog, is unchanged and recent, and was not received
before.

A request that is incomplete, malformed, old, altered or repeated, or whose signature cannot be remembered, is refused.
"""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from arclog.model.config.webhooks import DELIVERY, SIGNATURE, TIMESTAMP, signature
from arclog.model.errors import RequestRejected

#: The maximum age of a request, and how far the sender's clock may be ahead, in seconds.
WINDOW_S = 300.0


class WebhookRefused(RequestRejected):
    """A request that must not be acted on; answer it with 401."""


class Seen:
    """Accepted signatures, kept while they would still be valid. One for each receiver, in memory; a receiver with
    several processes must store delivery ids where all of them can read them.
    """

    def __init__(self, window_s: float = WINDOW_S, most: int = 100_000) -> None:
        self._window_s = window_s
        self._most = most
        self._until: OrderedDict[str, float] = OrderedDict()

    def take(self, signed: str, now: float) -> None:
        """Remember a signature. Raises WebhookRefused if it was seen before, or if too many are remembered."""
        while self._until and next(iter(self._until.values())) < now:
            self._until.popitem(last=False)
        if signed in self._until:
            raise WebhookRefused("the webhook was already received")
        if len(self._until) >= self._most:
            raise WebhookRefused(f"more than {self._most} webhooks in {self._window_s:g} s: try again later")
        # Twice the window: a request from a clock that is ahead stays valid for this long.
        self._until[signed] = now + 2 * self._window_s


def verify(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    seen: Seen,
    now: float | None = None,
    window_s: float = WINDOW_S,
) -> dict[str, Any]:
    """The content of a verified webhook. Raises WebhookRefused. `body` is the raw body, before any decoding.

    Delivery is at least once: the same `delivery` is the same message, whatever its timestamp.
    """
    if not secret:
        raise WebhookRefused("there is no secret to check the webhook with")
    by_name = {name.lower(): value for name, value in headers.items()}
    sent, delivery, signed = (by_name.get(name, "") for name in (TIMESTAMP, DELIVERY, SIGNATURE))
    if not (sent and delivery and signed):
        raise WebhookRefused(f"the webhook is not signed: it lacks {TIMESTAMP}, {DELIVERY} or {SIGNATURE}")
    expected = signature(secret, sent, delivery, body)
    if not hmac.compare_digest(expected.encode(), signed.encode()):
        raise WebhookRefused("the webhook's signature is wrong: it was altered, or signed with another secret")
    moment = time.time() if now is None else now
    if not (sent.isascii() and sent.isdigit()) or abs(moment - int(sent)) > window_s:
        raise WebhookRefused(f"the webhook was not sent within the last {window_s:g} s")
    seen.take(signed, moment)
    try:
        message: dict[str, Any] = msgspec.json.decode(body, type=dict)
    except msgspec.DecodeError:
        raise WebhookRefused("the webhook's body is not a JSON object") from None
    return {**message, "delivery": delivery}
