"""Bearer tokens of an OIDC issuer (JWT): signature, times, issuer and audience first, then claims to tenant and roles.

A token that is not exactly as configured is refused; it chooses its algorithm only from the allow-list.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from arclog.drivers.addresses import is_loopback, shown
from arclog.model.config.settings import Settings
from arclog.model.errors import RequestRejected, SettingsError, StoreUnavailable, Unauthenticated
from arclog.model.principal import ROLES, Principal, checked_name
from arclog.ports.clock import Clock

if TYPE_CHECKING:
    from jwt import PyJWK

# ── issuer ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Requests to the issuer of tokens: small answers, no redirects, within a time, and only where the network guard allows.


def require_https(url: str, name: str) -> None:
    """Raise SettingsError for an address without TLS, unless it is on this machine."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        raise SettingsError(f"{name} is not an address; use https://… or the path of a file") from None
    if url.startswith("http://") and not is_loopback(host):
        raise SettingsError(f"{name} {shown(url)} is not https: an attacker on the network could substitute keys")


async def fetch(
    settings: Settings,
    url: str,
    *,
    timeout_s: float,
    form: Mapping[str, str] | None = None,
    client: tuple[str, str] | None = None,
) -> bytes:
    """The body of an answer with status 200. With a form it is a POST, `client` is sent as basic authentication. Raises
    OSError or ValueError.
    """
    from arclog.drivers.http.fetch import Fetcher, NoAnswer, TooLarge
    from arclog.drivers.http.guard import guard_of

    max_bytes = settings.integer("auth.jwt_keys_max_bytes")
    headers, body = {"accept": "application/json"}, None
    if form is not None:
        headers["content-type"] = "application/x-www-form-urlencoded"
        body = urlencode(form).encode()
    if client is not None:
        # RFC 6749, 2.3.1: both are form-encoded before they are joined.
        pair = ":".join(quote_plus(part) for part in client)
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    guard = guard_of(settings, "network.allow_networks", "requests to token issuers")
    # Requests are rare, so no connection is kept.
    fetcher = Fetcher(settings, guard, timeout_s=timeout_s, max_bytes=max_bytes, proxies=False)
    try:
        answer = await fetcher.ask("GET" if body is None else "POST", url, headers=headers, body=body)
    except TooLarge:
        raise ValueError(f"more than {max_bytes} bytes (auth.jwt_keys_max_bytes)") from None
    except NoAnswer as problem:
        raise OSError(str(problem)) from None
    finally:
        await fetcher.close()
    if answer.status != 200:
        raise ValueError(f"the answer is {answer.status}{_error_code(answer.body)}")
    return answer.body


def _error_code(body: bytes) -> str:
    """The code of an OAuth error (RFC 6749, 5.2), in parentheses."""
    import msgspec

    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    error = answer.get("error") if isinstance(answer, dict) else None
    return f" ({error[:100]})" if isinstance(error, str) and error.isprintable() else ""


# ── keysets ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# The public keys of a token issuer: a JWKS from an address or a file, fetched again if it is old or lacks a key.
#
# Only keys that can verify but not create signatures are used: a `kty: oct` in the set is ignored, since anyone who can
# read the set could sign with it.


#: Signature algorithms of tokens, and the key type of each.
ALGORITHMS = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
#: The number of keys of a set that are read, and the smallest RSA key.
_MOST_KEYS = 100
_RSA_BITS = 2048
#: A token that names an unknown key causes a new fetch, at most this often.
_LOOK_AGAIN_S = 10.0
#: Time limit for the issuer's response.
_FETCH_S = 10.0

log = logging.getLogger("arclog.server")


class KeySet:
    """The keys of one issuer."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._where = settings.text("auth.jwt_keys")
        self._settings = settings
        self._clock = clock
        self._refresh_s = settings.number("auth.jwt_refresh_s")
        self._max_bytes = settings.integer("auth.jwt_keys_max_bytes")
        self._keys: list[PyJWK] = []
        self._tried_at: float | None = None
        self._lock = asyncio.Lock()
        self._is_url = self._where.startswith(("http://", "https://"))
        #: for messages
        self._shown = shown(self._where) if self._is_url else self._where
        require_https(self._where, "auth.jwt_keys")

    async def find(self, kid: str, algorithm: str) -> PyJWK | None:
        """The key that a token names; without a name, the only one that fits."""
        if self._is_old(self._refresh_s):
            await self._load(self._refresh_s)
        key = self._among(kid, algorithm)
        if key is None and self._is_old(_LOOK_AGAIN_S):
            await self._load(_LOOK_AGAIN_S)
            key = self._among(kid, algorithm)
        return key

    def _among(self, kid: str, algorithm: str) -> PyJWK | None:
        fits = [key for key in self._keys if key.key_type == ALGORITHMS[algorithm] and key.algorithm_name == algorithm]
        if kid:
            return next((key for key in fits if key.key_id == kid), None)
        return fits[0] if len(fits) == 1 else None

    def _is_old(self, seconds: float) -> bool:
        return self._tried_at is None or self._clock.monotonic() - self._tried_at >= min(seconds, self._refresh_s)

    async def _load(self, age_s: float) -> None:
        async with self._lock:
            if not self._is_old(age_s):  # another task fetched them
                return
            self._tried_at = self._clock.monotonic()
            try:
                body = await self._fetch() if self._is_url else await asyncio.to_thread(self._read)
                self._keys = _usable(body)
            except (OSError, ValueError) as problem:
                log.warning("auth.jwt_keys %s: %s; keeping %d known keys", self._shown, problem, len(self._keys))
                if not self._keys:
                    raise StoreUnavailable(
                        f"the keys of the token issuer cannot be loaded ({self._shown}: {problem}); try again in a moment"
                    ) from None

    async def _fetch(self) -> bytes:
        return await fetch(self._settings, self._where, timeout_s=_FETCH_S)

    def _read(self) -> bytes:
        with Path(self._where).open("rb") as file:
            body = file.read(self._max_bytes + 1)
        return self._small(body)

    def _small(self, body: bytes) -> bytes:
        if len(body) > self._max_bytes:
            raise ValueError(f"more than {self._max_bytes} bytes (auth.jwt_keys_max_bytes)")
        return body


def _usable(body: bytes) -> list[PyJWK]:
    """The keys of a set that may be used; others are ignored, as the standard requires."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    document: Any = msgspec.json.decode(body)
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise ValueError("this is not a JWKS: it has no list `keys`")  # noqa: TRY004 - the content is wrong, not a type
    usable: list[PyJWK] = []
    for entry in keys[:_MOST_KEYS]:
        if (
            not isinstance(entry, dict)
            or entry.get("use", "sig") != "sig"
            or entry.get("kty") not in ALGORITHMS.values()
        ):
            continue
        if "d" in entry:  # a private key: every reader of the set could sign with it
            continue
        try:
            key = PyJWK(entry)
        except (PyJWTError, ValueError, TypeError):
            continue
        if key.algorithm_name in ALGORITHMS and not (key.key_type == "RSA" and key.key.key_size < _RSA_BITS):
            usable.append(key)
    if not usable:
        raise ValueError(f"the set has no key for {', '.join(ALGORITHMS)}")
    return usable


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────────


_LONGEST_NAME = 256
_NEEDED = ("auth.jwt_issuer", "auth.jwt_audience", "auth.jwt_keys")


def tokens_of(settings: Settings, clock: Clock) -> Tokens | None:
    """The verifier of tokens, if it is configured. Raises SettingsError if it is configured only in part."""
    missing = [name for name in _NEEDED if not settings.text(name)]
    if len(missing) == len(_NEEDED):
        return None
    if missing:
        raise SettingsError(
            f"tokens (JWT) need {' and '.join(missing)} as well; a token is checked against all of them"
        )
    return Tokens(settings, KeySet(settings, clock))


class Tokens:
    """Verifies tokens and maps their claims to a principal."""

    def __init__(self, settings: Settings, keys: KeySet, audience: str = "") -> None:
        self._issuer = settings.text("auth.jwt_issuer")
        self._audience = audience or settings.text("auth.jwt_audience")
        self._tenant_claim = settings.text("auth.jwt_tenant_claim")
        self._roles_claim = settings.text("auth.jwt_roles_claim")
        self._leeway = settings.number("auth.jwt_leeway_s")
        self.keys = keys

    async def prove(self, text: str) -> Principal:
        """The principal of a token. Raises Unauthenticated, or StoreUnavailable when the issuer's keys are not
        available.
        """
        return self.principal(await self.claims(text))

    async def claims(self, text: str) -> Mapping[str, Any]:
        """The claims of a token whose signature, times, issuer and audience are valid. Raises as `prove` does."""
        import jwt

        try:
            header = jwt.get_unverified_header(text)
            algorithm, kid = header.get("alg"), header.get("kid", "")
            if not isinstance(algorithm, str) or algorithm not in ALGORITHMS or not isinstance(kid, str):
                raise Unauthenticated(f"the token is not signed with one of {', '.join(ALGORITHMS)}")
            key = await self.keys.find(kid, algorithm)
            if key is None:
                raise Unauthenticated("the token is signed with a key that its issuer does not publish")
            claims: Mapping[str, Any] = jwt.decode(
                text,
                key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=self._leeway,
                options={"require": ["exp", "iss", "aud", "sub"], "strict_aud": False},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as problem:  # malformed input
            raise Unauthenticated(f"the token is refused: {_short_message(problem)}") from None
        return claims

    def principal(self, claims: Mapping[str, Any]) -> Principal:
        """The principal of these claims. Raises Unauthenticated."""
        name = claims["sub"]
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
            raise Unauthenticated(f"the token's `sub` is not a name of 1 to {_LONGEST_NAME} printable characters")
        tenant = _claim(claims, self._tenant_claim)
        if not isinstance(tenant, str):
            raise Unauthenticated(f"the token names no tenant: it has no text in the claim {self._tenant_claim}")
        try:
            checked_name(tenant, "tenant")
        except RequestRejected as problem:
            raise Unauthenticated(f"the token's claim {self._tenant_claim}: {problem}") from None
        roles = _claim(claims, self._roles_claim)
        words = roles.split() if isinstance(roles, str) else roles if isinstance(roles, list) else []
        roles_known = frozenset(role for role in ROLES if role in words)
        return Principal(name, tenant, roles_known, subject=f"token-{name}")


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its full name (which may contain dots, such as a URL), else by its path."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _short_message(problem: Exception) -> str:
    text = str(problem) or type(problem).__name__
    return text[:200]
