"""Sends webhooks with the http tool's guarded client: the same checks of where a request goes, and no redirects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from arclog.model.settings import Settings

if TYPE_CHECKING:
    from arclog.tools.http.client import Client


class WebhookSender:
    """One client for all webhooks, made when the first is sent."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._timeout_s = settings.number("webhooks.timeout_s")

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> str:
        """POST it; '' when the answer was 2xx, else what went wrong."""
        # Brings the HTTP client along; a process without webhooks needs none of it.
        import httpcore2

        from arclog.tools.http.client import Client, Message, Payload, Timeouts
        from arclog.tools.http.failure import Failure
        from arclog.tools.http.guard import Guard
        from arclog.tools.http.request import target_of

        try:
            if self._client is None:
                self._client = Client(self._settings, Guard(self._settings.text("webhooks.allow_networks")))
            target = target_of(url)
            given = {"host": target.authority, **headers, "content-length": str(len(body))}
            message = Message("POST", target, given, Payload(body, len(body), headers["content-type"]))
            timeouts = Timeouts(self._timeout_s, self._timeout_s)
            async with asyncio.timeout(self._timeout_s):
                response = await self._client.send(message, timeouts, verify=True)
                try:
                    status = response.status
                finally:
                    await response.aclose()
        except Failure as failure:
            return failure.problem.message.replace("http tasks reach", "webhooks reach").replace(
                "http.allow_networks", "webhooks.allow_networks"
            )
        except (TimeoutError, httpcore2.TimeoutException):
            return f"no answer within {self._timeout_s:g} s (webhooks.timeout_s)"
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ProxyError, OSError) as trouble:
            return f"{type(trouble).__name__}: {trouble}".strip(": ")
        if 200 <= status < 300:
            return ""
        if 300 <= status < 400:
            return f"the answer was {status}, and webhooks follow no redirects; give the address itself"
        return f"the answer was {status}"

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
