"""Sessions of browsers: a person signs in once, and a cookie that scripts cannot read identifies the session.

The cookie's value is 256 random bits; the store has only its sha256, so every server of the store knows the session,
and a reader of the store cannot use it. A session opened with an API key ends with the key. A request that changes
something must also carry the session's CSRF token, which only our own pages can read.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from arclog.drivers.addresses import is_loopback, without_port
from arclog.model.config.settings import Settings
from arclog.model.data.lru import LruCache
from arclog.model.errors import NotAllowed, Unauthenticated
from arclog.model.ids import MICROS
from arclog.model.principal import Principal
from arclog.ports.clock import Clock
from arclog.ports.storage.access import AccessBook, SessionRecord

#: The header with the CSRF token of a request.
CSRF_HEADER = "x-arclog-csrf"
_COOKIE = "arclog_session"
_OWN_SITE = ("same-origin", "none")
#: The number of sessions that a server caches.
_REMEMBERED = 10_000
_SIGN_IN = "sign in again"


class _CachedSession(Struct, frozen=True):
    record: SessionRecord
    #: when it was last looked up in the store
    looked_at: float


class Sessions:
    """Opens, checks and closes sessions."""

    def __init__(self, settings: Settings, book: AccessBook, clock: Clock) -> None:
        self._book = book
        self._clock = clock
        self._lasts = round(settings.number("auth.session_s") * MICROS)
        self._most = settings.integer("auth.max_sessions")
        self._cache_s = settings.number("auth.cache_s")
        self._public = urlsplit(settings.text("server.public_url"))
        self._cached: LruCache[str, _CachedSession] = LruCache(_REMEMBERED)

    async def open(self, principal: Principal, key_id: str = "") -> tuple[str, Principal]:
        """Begin a session; returns the cookie's value, and the principal of requests that carry it."""
        token, now = secrets.token_urlsafe(32), self._clock.now()
        record = SessionRecord(
            digest=_digest(token),
            key_id=key_id,
            name=principal.name,
            tenant=principal.tenant,
            roles=tuple(sorted(principal.roles)),
            subject=principal.subject,
            created_at=now,
            expires_at=now + self._lasts,
            project=principal.project,
            environment=principal.environment,
        )
        await self._book.add_session(record, self._most)
        return token, _principal(record, token)

    async def principal(self, token: str) -> Principal:
        """The principal of a session. Raises Unauthenticated."""
        digest = _digest(token)
        cached = self._cached.get(digest)
        if cached is None or self._clock.monotonic() - cached.looked_at >= self._cache_s:
            record = await self._book.session(digest)
            if record is None:
                raise Unauthenticated(f"there is no such session, or it was closed; {_SIGN_IN}")
            await self._check_key(record)
            cached = _CachedSession(record, self._clock.monotonic())
            self._cached.replace(digest, cached)
        if cached.record.expires_at <= self._clock.now():
            raise Unauthenticated(f"the session has expired; {_SIGN_IN}")
        return _principal(cached.record, token)

    def is_known(self, token: str) -> bool:
        """Return whether a request with this session was accepted before."""
        return _digest(token) in self._cached

    async def close(self, token: str) -> None:
        """End a session; other servers notice within `auth.cache_s`."""
        digest = _digest(token)
        self._cached.pop(digest)
        await self._book.remove_session(digest)

    async def _check_key(self, record: SessionRecord) -> None:
        if not record.key_id:
            return
        key = await self._book.key(record.key_id)
        over = key is None or key.revoked_at is not None
        if over or (key is not None and key.expires_at is not None and key.expires_at <= self._clock.now()):
            raise Unauthenticated(f"the key of this session was revoked or has expired; {_SIGN_IN}")

    # -- cookies ------------------------------------------------------------------------------------------------------

    def token_of(self, headers: Mapping[str, str]) -> str:
        """The value of the session's cookie, '' without one."""
        return cookie_of(headers, self._name(headers))

    def cookie(self, headers: Mapping[str, str], scheme: str, token: str) -> str:
        """The Set-Cookie header that sets a token, or, with '', removes it."""
        lasts = self._lasts // MICROS if token else 0
        return f"{self._name(headers)}={token}; Path=/; Max-Age={lasts}; HttpOnly; SameSite=Strict{self.secure(scheme)}"

    def _name(self, headers: Mapping[str, str]) -> str:
        """With TLS, a name with a prefix for which browsers accept a cookie from this host alone: other sites of the
        same domain, or sites without TLS, cannot replace the session with theirs.
        """
        return f"{'__Host-' if self._public.scheme == 'https' else ''}{cookie_name(headers)}"

    def secure(self, scheme: str) -> str:
        """Further attributes of a cookie when browsers use TLS."""
        return "; Secure" if "https" in (scheme, self._public.scheme) else ""

    # -- where a request comes from -----------------------------------------------------------------------------------

    def check_own_site(self, headers: Mapping[str, str]) -> None:
        """Refuse a request that a page of another site caused."""
        if not is_own_site(headers, self._public.netloc):
            raise NotAllowed(
                "this request comes from another site; console sessions are valid for pages of this server only"
            )


def check_local(headers: Mapping[str, str]) -> None:
    """For a server without authentication: refuse requests that a web page in a browser on this machine may have sent,
    by another name of this machine (DNS rebinding) or from another site.
    """
    check_host(headers)
    if not is_own_site(headers):
        raise NotAllowed("without authentication, this server does not answer requests from pages of other sites")


def check_host(headers: Mapping[str, str]) -> None:
    """For a server without authentication: refuse requests by another name of this machine (DNS rebinding)."""
    host = headers.get("host", "")
    if not is_loopback(without_port(host)):
        raise NotAllowed(
            f"without authentication, this server accepts only local host names, not {host[:128]!r}; use "
            "http://127.0.0.1 or http://localhost"
        )


def is_own_site(headers: Mapping[str, str], public: str = "") -> bool:
    """Return whether a request comes from one of this server's pages, or from no page at all. `public` is another name
    of this server.
    """
    origin = headers.get("origin")
    if origin is not None:
        where = urlsplit(origin).netloc.lower()
        if not where or where not in (headers.get("host", "").lower(), public.lower()):
            return False
    return headers.get("sec-fetch-site", "none") in _OWN_SITE


def cookie_name(headers: Mapping[str, str]) -> str:
    """Return the name of the cookie. Cookies of a host are shared by all its ports; the name distinguishes two servers
    on one machine.
    """
    _, _, port = headers.get("host", "").rpartition("]")[2].partition(":")
    return f"{_COOKIE}_{port}" if port.isdigit() else _COOKIE


def cookie_of(headers: Mapping[str, str], cookie_name: str) -> str:
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie_name:
            return value
    return ""


def csrf_of(token: str) -> str:
    """The token by which pages of a session prove that they belong to this server; the cookie cannot be derived from
    it.
    """
    return hmac.new(token.encode(), b"csrf", hashlib.sha256).hexdigest()


def check_csrf(principal: Principal, headers: Mapping[str, str]) -> None:
    """Refuse a request of a session that does not carry its CSRF token."""
    sent = headers.get(CSRF_HEADER, "")
    if principal.csrf and not hmac.compare_digest(principal.csrf.encode(), sent.encode("utf-8", "surrogatepass")):
        raise NotAllowed(f"a session's request that changes data must carry its CSRF token ({CSRF_HEADER})")


def _principal(record: SessionRecord, token: str) -> Principal:
    return Principal(
        name=record.name,
        tenant=record.tenant,
        roles=frozenset(record.roles),
        project=record.project,
        environment=record.environment,
        subject=record.subject,
        csrf=csrf_of(token),
        expires_at=record.expires_at,
    )


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
