"""Sends webhooks with the guarded client, which checks the destination of a request and follows no redirects.
Deliveries to mail addresses go to `wiring.senders.mail`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from arclog.model.config.settings import Settings
from arclog.model.config.webhooks import DELIVERY

if TYPE_CHECKING:
    from arclog.drivers.http.fetch import Fetcher


class WebhookSender:
    """One client for all webhooks, created when the first is sent."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._fetcher: Fetcher | None = None
        self._timeout_s = settings.number("webhooks.timeout_s")

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> str:
        """POST or mail a delivery. Returns '' if the receiver accepted it, else the error."""
        if url.startswith("mailto:"):
            from arclog.wiring.senders.mail import MailSender

            return await MailSender(self._settings).send(url, body, headers[DELIVERY])
        # Imported here: it loads the HTTP client, which a process without webhooks does not need.
        from arclog.drivers.http.fetch import Fetcher, Late, NoAnswer
        from arclog.drivers.http.guard import guard_of

        if self._fetcher is None:
            guard = guard_of(self._settings, "webhooks.allow_networks", "webhooks")
            self._fetcher = Fetcher(self._settings, guard, timeout_s=self._timeout_s, max_bytes=0)
        try:
            status = (await self._fetcher.ask("POST", url, headers=headers, body=body, read=False)).status
        except Late:
            return f"no answer within {self._timeout_s:g} s (webhooks.timeout_s)"
        except NoAnswer as problem:
            return str(problem)
        if 200 <= status < 300:
            return ""
        if 300 <= status < 400:
            return f"the answer was {status}, and webhooks follow no redirects; give the address itself"
        return f"the answer was {status}"

    async def close(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()
