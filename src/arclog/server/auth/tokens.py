"""Bearer tokens of an OIDC issuer (JWT): signature, times, issuer and audience first, then claims to tenant and roles.

Whatever is not exactly as configured is refused; a token never says how it wants to be checked beyond the allow-list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arclog.model.config.settings import Settings
from arclog.model.errors import RequestRejected, SettingsError, Unauthenticated
from arclog.model.principal import ROLES, Principal, checked_name
from arclog.ports.clock import Clock
from arclog.server.auth.keysets import ALGORITHMS, KeySet

_LONGEST_NAME = 256
_NEEDED = ("auth.jwt_issuer", "auth.jwt_audience", "auth.jwt_keys")


def tokens_of(settings: Settings, clock: Clock) -> Tokens | None:
    """What checks tokens, when that is configured. Raises SettingsError when it is half configured."""
    missing = [name for name in _NEEDED if not settings.text(name)]
    if len(missing) == len(_NEEDED):
        return None
    if missing:
        raise SettingsError(
            f"tokens (JWT) need {' and '.join(missing)} as well; a token is checked against all of them"
        )
    return Tokens(settings, KeySet(settings, clock))


class Tokens:
    """Tells who a token speaks for."""

    def __init__(self, settings: Settings, keys: KeySet, audience: str = "") -> None:
        self._issuer = settings.text("auth.jwt_issuer")
        self._audience = audience or settings.text("auth.jwt_audience")
        self._tenant_claim = settings.text("auth.jwt_tenant_claim")
        self._roles_claim = settings.text("auth.jwt_roles_claim")
        self._leeway = settings.number("auth.jwt_leeway_s")
        self.keys = keys

    async def prove(self, text: str) -> Principal:
        """Who the token speaks for. Raises Unauthenticated, or StoreUnavailable when the issuer's keys is not available."""
        return self.principal(await self.claims(text))

    async def claims(self, text: str) -> Mapping[str, Any]:
        """What a token says, once its signature, times, issuer and audience are right. Raises as `prove` does."""
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
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as problem:  # whatever garbage does to a parser
            raise Unauthenticated(f"the token is refused: {_short_message(problem)}") from None
        return claims

    def principal(self, claims: Mapping[str, Any]) -> Principal:
        """Who such claims speak for. Raises Unauthenticated."""
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
    """A claim by its whole name (which may have dots of its own: a URL), else by the way into it."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _short_message(problem: Exception) -> str:
    text = str(problem) or type(problem).__name__
    return text[:200]
