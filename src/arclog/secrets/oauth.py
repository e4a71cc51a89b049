"""OAuth 2 client credentials: tokens are fetched when needed and cached until shortly before they expire.

Concurrent callers share one request. Messages repeat nothing from the server but a short error code, since the server
may echo the secret.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec
from msgspec import Struct

from arclog.drivers.addresses import is_loopback, shown
from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable
from arclog.ports.clock import Clock

_CODE = re.compile(r"[A-Za-z0-9_.\-]{1,64}\Z")
#: Lifetime of a token whose server does not state one.
_UNSAID_S = 300.0


class Grant(Struct, frozen=True):
    """The data of a token request."""

    token_url: str
    client_id: str
    client_secret: str
    scope: str = ""
    audience: str = ""
    #: basic | post
    client_auth: str = "basic"

    def __repr__(self) -> str:
        return f"Grant({self.token_url!r})"


class Token(Struct, frozen=True):
    text: str
    kind: str
    #: monotonic time from which a new token is fetched
    until: float

    def __repr__(self) -> str:
        return "Token"


class Tokens:
    """The tokens of one process."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._clock = clock
        self._settings = settings
        self._timeout_s = settings.number("secrets.token_timeout_s")
        self._margin_s = settings.number("secrets.token_margin_s")
        self._most = settings.integer("secrets.max_bytes")
        self._tokens: dict[str, Token] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def get(self, grant: Grant) -> Token:
        key = _key(grant)
        # A second caller waits for the first one's answer.
        async with self._locks.setdefault(key, asyncio.Lock()):
            token = self._tokens.get(key)
            if token is None or token.until <= self._clock.monotonic():
                token = self._tokens[key] = await self._fetch(grant)
            return token

    def forget(self, grant: Grant) -> None:
        """Forget a rejected token; the next call fetches another one."""
        self._tokens.pop(_key(grant), None)

    async def _fetch(self, grant: Grant) -> Token:
        from arclog.drivers.http.fetch import Fetcher, Late, NoAnswer, TooLarge
        from arclog.drivers.http.guard import guard_of

        form = {"grant_type": "client_credentials", "scope": grant.scope, "audience": grant.audience}
        headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
        if grant.client_auth == "post":
            form.update(client_id=grant.client_id, client_secret=grant.client_secret)
        else:
            # RFC 6749, 2.3.1: both are form-encoded before they are joined.
            pair = f"{quote_plus(grant.client_id)}:{quote_plus(grant.client_secret)}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        where = f"the token server {shown(grant.token_url)}"
        body = urlencode({key: value for key, value in form.items() if value}).encode()
        guard = guard_of(self._settings, "secrets.allow_networks", "token requests")
        # Requests are rare, so no connection is kept open.
        fetcher = Fetcher(self._settings, guard, timeout_s=self._timeout_s, max_bytes=self._most)
        try:
            answer = await fetcher.ask("POST", grant.token_url, headers=headers, body=body)
        except Late:
            message = f"{where} did not answer within {self._timeout_s:g} s (secrets.token_timeout_s)"
            raise SecretUnavailable(message, retryable=True) from None
        except TooLarge:
            raise SecretUnavailable(f"{where} answered more than {self._most} bytes (secrets.max_bytes)") from None
        except NoAnswer as problem:
            raise SecretUnavailable(f"{where}: {problem}", retryable=problem.retryable) from None
        finally:
            await fetcher.close()
        return self._token(where, answer.status, answer.body)

    def _token(self, where: str, status: int, body: bytes) -> Token:
        try:
            decoded: Any = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeError):
            decoded = None
        answer = decoded if isinstance(decoded, dict) else {}
        if status >= 300:
            code = answer.get("error")
            words = f": {code}" if isinstance(code, str) and _CODE.match(code) else ""
            hint = "; check client_id and client_secret" if status in (400, 401, 403) else ""
            raise SecretUnavailable(
                f"{where} answered {status}{words}{hint}", retryable=status >= 500 or status in (408, 429)
            )
        text, kind, lasts = answer.get("access_token"), answer.get("token_type", "Bearer"), answer.get("expires_in")
        if not isinstance(text, str) or not text or not isinstance(kind, str):
            raise SecretUnavailable(f"{where} answered {status} without an access_token")
        try:
            seconds = _UNSAID_S if lasts is None else float(lasts)
        except (TypeError, ValueError):
            seconds = _UNSAID_S
        # A token with a lifetime shorter than the margin is used for half of it.
        good_s = max(seconds - self._margin_s, seconds / 2, 0.0)
        return Token(text, "Bearer" if kind.lower() == "bearer" else kind, self._clock.monotonic() + good_s)


def check_url(url: str) -> str:
    """Return the problem of a token server's address, or ''."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return "token_url is not a URL"
    if not host or parts.scheme not in ("https", "http"):
        return "token_url must be an https URL"
    if parts.username or parts.password:
        return "token_url must not contain a user name or password"
    if parts.scheme == "http" and not is_loopback(host):
        return "token_url must be an https URL: a secret would be sent unencrypted"
    return ""


def _key(grant: Grant) -> str:
    """Return the cache key of a grant. A rotated secret has a new key; only a digest is kept."""
    return hashlib.sha256(msgspec.json.encode(grant)).hexdigest()
