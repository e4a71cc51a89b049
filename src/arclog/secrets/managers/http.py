"""Requests to a secret manager, and what their failures mean: one small client for all of them.

Law: a message names the manager and its host, never a header, a body or a query. Redirects are not followed: a credential
goes where the settings say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from arclog.drivers.addresses import shown
from arclog.model.errors import SecretUnavailable, SettingsError
from arclog.model.settings import Settings
from arclog.secrets.oauth import check_url

#: Answers after which the same request may succeed a little later.
_PASSING = frozenset({408, 425, 429})


class Answer(NamedTuple):
    status: int
    body: bytes

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON object that it is; {} of anything else."""
        try:
            value = msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, UnicodeError):
            return {}
        return value if isinstance(value, dict) else {}


class ManagerHttp:
    """Asks one manager. `name` is what messages call it."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self._timeout_s = settings.number("secrets.manager_timeout_s")
        self._most = 2 * settings.integer("secrets.max_bytes") + 64 * 1024  # base64, and what is around it
        self._client: Any = None

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """The answer, whatever its status. Raises SecretUnavailable when there is none."""
        import httpx2

        where = f"{self.name} at {shown(url)}"
        if self._client is None:
            # A metadata service is asked by this client, too: no proxy of the environment may be in between.
            self._client = httpx2.AsyncClient(timeout=self._timeout_s, follow_redirects=False, trust_env=False)
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream(method, url, headers=headers, data=form, content=body) as response,
            ):
                content = b""
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > self._most:
                        raise SecretUnavailable(f"{where} answered more than {self._most} bytes", kind="config")
        except (TimeoutError, httpx2.TimeoutException):
            message = f"{where} did not answer within {self._timeout_s:g} s (secrets.manager_timeout_s)"
            raise SecretUnavailable(message, kind="connection", retryable=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as problem:
            message = f"{where} cannot be reached: {type(problem).__name__}"
            raise SecretUnavailable(message, kind="connection", retryable=True) from None
        return Answer(response.status_code, content)

    def refusal(self, answer: Answer, url: str, code: str, remedy: str) -> SecretUnavailable:
        """The error for an answer that is no secret. `code` is the manager's own word for it, of letters only."""
        word = f" {code}" if code.replace("_", "").isalnum() and len(code) <= 80 else ""
        message = f"{self.name} at {shown(url)} answered {answer.status}{word}"
        if answer.status >= 500 or answer.status in _PASSING:
            return SecretUnavailable(f"{message}; try again in a moment", kind="connection", retryable=True)
        return SecretUnavailable(f"{message}; {remedy}", kind="auth" if answer.status in (400, 401, 403) else "config")

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None


class SecretNotThere(SecretUnavailable):
    """The manager has no secret of that name: a wider scope may have one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no secret {name}", kind="config")


def checked_address(url: str, what: str) -> str:
    """An address that secrets may be asked for at, without its last slash. Raises SettingsError."""
    wrong = check_url(url)
    if wrong:
        raise SettingsError(f"{what}: {wrong.replace('token_url', 'it')}")
    return url.rstrip("/")
