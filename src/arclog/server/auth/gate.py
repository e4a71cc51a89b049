"""Authenticates requests. A request whose sender cannot be verified is refused.

Without authentication a server listens on loopback only, and every process on this machine may do everything. Web pages
may not: a request that used another host name (DNS rebinding) or came from another origin is refused.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping

from arclog.drivers.addresses import is_loopback, neighbourhood
from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError, TooManyRequests, Unauthenticated
from arclog.model.principal import EVERYBODY, ROLES, Principal
from arclog.ports.clock import Clock
from arclog.ports.storage.access import AccessBook
from arclog.server.auth.keys import PREFIX, Keys
from arclog.server.auth.oidc import Oidc, oidc_of
from arclog.server.auth.sessions import Sessions, check_host, check_local
from arclog.server.auth.tokens import tokens_of

# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Counts failed authentications by address. Kept in memory and bounded: the least recent are dropped first.


_WINDOW_S = 60.0
_REMEMBERED = 10_000


class Failures:
    """Counts by address, in windows of a minute from the first failure."""

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock = clock
        self._most = most
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise TooManyRequests while an address has failed too often."""
        since, count = self._counts.get(neighbourhood(address), (0.0, 0))
        left = since + _WINDOW_S - self._clock.monotonic()
        if count >= self._most and left > 0:
            raise TooManyRequests(
                f"too many requests from {address} without valid credentials; try again in {math.ceil(left)} s "
                "(auth.max_failures)",
                retry_after_s=math.ceil(left),
            )

    def note(self, address: str) -> None:
        where, now = neighbourhood(address), self._clock.monotonic()
        since, count = self._counts.pop(where, (now, 0))
        if now - since >= _WINDOW_S:
            since, count = now, 0
        self._counts[where] = (since, count + 1)
        while len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)


# ── gate ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Gate:
    """Authenticates a caller by API key, by token, by the session of a browser, or because it is on this machine."""

    def __init__(self, settings: Settings, book: AccessBook, clock: Clock) -> None:
        self._mode = settings.text("auth.mode")
        self._book = book
        self._clock = clock
        self._keys = Keys(book, clock, settings)
        self._tokens = tokens_of(settings, clock)
        self.sessions = Sessions(settings, book, clock)
        #: sign-in at an OIDC issuer; None if it is not configured
        self.oidc: Oidc | None = oidc_of(settings, clock, self._tokens)
        self._failures = Failures(clock, settings.integer("auth.max_failures"))
        self._max_bytes = settings.integer("auth.max_token_bytes")
        self._cache_s = settings.number("auth.cache_s")
        self._required = self._mode == "required" or self._tokens is not None
        self._looked_at: float | None = None
        self._everybody = Principal(EVERYBODY, settings.text("scope.tenant"), frozenset(ROLES))
        if self._mode == "none" and self._tokens is not None:
            raise SettingsError(
                "auth.mode is none although tokens are configured (auth.jwt_issuer); change one of them"
            )

    async def check_address(self, host: str) -> None:
        """Refuse to listen on an address that others can reach if the server would admit everyone, or no one."""
        if is_loopback(host):
            return
        if self._mode == "none":
            raise SettingsError(
                f"server.host {host} can be reached by other machines and auth.mode is none; listen on 127.0.0.1, "
                "or set auth.mode to required"
            )
        if self._tokens is None and not await self._book.has_keys():
            raise SettingsError(
                f"server.host {host} can be reached by other machines and no authentication is configured; create "
                "a key first (arclog key create --name me --role admin), or listen on 127.0.0.1"
            )
        self._required = True

    async def authenticate(self, headers: Mapping[str, str], address: str) -> Principal:
        """The principal of a request with these headers (names in lower case) from this address. Raises
        Unauthenticated, NotAllowed or TooManyRequests.
        """
        if not await self.is_required():
            check_local(headers)
            return self._everybody
        if "authorization" not in headers and (session := self.sessions.token_of(headers)):
            return await self._of_session(session, headers, address)
        return await self._of_credential(self._credential(headers, address), address)

    async def _of_session(self, session: str, headers: Mapping[str, str], address: str) -> Principal:
        self.sessions.check_own_site(headers)
        if not self.sessions.is_known(
            session
        ):  # as with keys: a known caller is not refused because of others at the same address
            self._failures.check(address)
        try:
            return await self.sessions.principal(session)
        except Unauthenticated:
            self._failures.note(address)
            raise

    async def sign_in(self, key: str, address: str) -> tuple[Principal, str]:
        """The principal of an API key, and the key's id. Raises Unauthenticated or TooManyRequests."""
        if not key.startswith(PREFIX) or len(key) > self._max_bytes:
            self._failures.check(address)
            self._failures.note(address)
            raise Unauthenticated("invalid API key; `arclog key create` creates one")
        principal = await self._of_credential(key, address)
        return principal, principal.subject.removeprefix("key-")

    async def sign_in_at_issuer(self, cookie: str, state: str, code: str, address: str) -> tuple[Principal, str]:
        """The principal that the issuer confirms, and the page to return to. Raises Unauthenticated, TooManyRequests or
        StoreUnavailable. Attempts are limited, since anybody can send one and each costs a request to the issuer.
        """
        if self.oidc is None:
            raise Unauthenticated("this server has no OIDC issuer to sign in at (auth.oidc_client_id)")
        self._failures.check(address)
        try:
            return await self.oidc.finish(cookie, state, code)
        except Unauthenticated:
            self._failures.note(address)
            raise

    async def _of_credential(self, text: str, address: str) -> Principal:
        if text.startswith(PREFIX):
            # Checked before failures are counted: a known caller is not refused because of others at the same address.
            try:
                proved = await self._keys.cached(text)
            except Unauthenticated:
                self._failures.check(address)
                self._failures.note(address)
                raise
            if proved is not None:
                return proved
        self._failures.check(address)
        try:
            if text.startswith(PREFIX):
                return await self._keys.prove(text)
            if self._tokens is None:
                raise Unauthenticated("invalid API key; `arclog key create` creates one")
            return await self._tokens.prove(text)
        except Unauthenticated:
            self._failures.note(address)
            raise

    def _credential(self, headers: Mapping[str, str], address: str) -> str:
        scheme, _, text = headers.get("authorization", "").partition(" ")
        text = text.strip()
        if scheme.lower() == "bearer" and text:
            if len(text) <= self._max_bytes:
                return text
            problem = f"the credential has more than {self._max_bytes} bytes (auth.max_token_bytes)"
        elif scheme:
            problem = "unsupported authentication scheme; send `Authorization: Bearer KEY`"
        else:
            problem = "authentication required: send `Authorization: Bearer KEY`; `arclog key create` creates a key"
        self._failures.check(address)
        self._failures.note(address)
        raise Unauthenticated(problem)

    def key_made(self) -> None:
        """Require authentication from now on, because a key was created here, without waiting for the next read of the
        store.
        """
        self._looked_at = None

    async def is_page_open(self, headers: Mapping[str, str]) -> bool:
        """Return whether a page of the console may request data without signing in, because this server requires no
        authentication. Raises NotAllowed for a request that used another name of this machine. Links from other sites
        may lead here.
        """
        if await self.is_required():
            return False
        check_host(headers)
        return True

    async def is_required(self) -> bool:
        """Return whether callers must authenticate."""
        if self._required or self._mode == "none":
            return self._required
        now = self._clock.monotonic()
        if self._looked_at is None or now - self._looked_at >= self._cache_s:
            self._required = await self._book.has_keys()
            self._looked_at = now
        return self._required
