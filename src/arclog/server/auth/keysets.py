"""The public keys of a token issuer: a JWKS from an address or a file, fetched again when it is old or lacks a key.

Only keys that can prove a signature without being able to make one are taken: a `kty: oct` in the set is ignored, so that
nobody can sign with what everybody may read.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from arclog.drivers.addresses import shown
from arclog.model.config.settings import Settings
from arclog.model.errors import StoreUnavailable
from arclog.ports.clock import Clock
from arclog.server.auth.issuer import fetch, require_https

if TYPE_CHECKING:
    from jwt import PyJWK

#: How a token may be signed, and the key type that goes with it.
ALGORITHMS = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
#: Keys of a set that are looked at, and the smallest RSA key.
_MOST_KEYS = 100
_RSA_BITS = 2048
#: A token that names an unknown key makes us look again, at most this often.
_LOOK_AGAIN_S = 10.0
#: How long the issuer may take to answer.
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
        found = self._among(kid, algorithm)
        if found is None and self._is_old(_LOOK_AGAIN_S):
            await self._load(_LOOK_AGAIN_S)
            found = self._among(kid, algorithm)
        return found

    def _among(self, kid: str, algorithm: str) -> PyJWK | None:
        fits = [key for key in self._keys if key.key_type == ALGORITHMS[algorithm] and key.algorithm_name == algorithm]
        if kid:
            return next((key for key in fits if key.key_id == kid), None)
        return fits[0] if len(fits) == 1 else None

    def _is_old(self, seconds: float) -> bool:
        return self._tried_at is None or self._clock.monotonic() - self._tried_at >= min(seconds, self._refresh_s)

    async def _load(self, age_s: float) -> None:
        async with self._lock:
            if not self._is_old(age_s):  # somebody else did
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
    """The keys of a set that may be used; others are passed over, as the standard asks."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    told: Any = msgspec.json.decode(body)
    keys = told.get("keys") if isinstance(told, dict) else None
    if not isinstance(keys, list):
        raise ValueError("this is not a JWKS: it has no list `keys`")  # noqa: TRY004 - the content is wrong, not a type
    found: list[PyJWK] = []
    for one in keys[:_MOST_KEYS]:
        if not isinstance(one, dict) or one.get("use", "sig") != "sig" or one.get("kty") not in ALGORITHMS.values():
            continue
        if "d" in one:  # a private key: whoever can read the set can sign with it
            continue
        try:
            key = PyJWK(one)
        except (PyJWTError, ValueError, TypeError):
            continue
        if key.algorithm_name in ALGORITHMS and not (key.key_type == "RSA" and key.key.key_size < _RSA_BITS):
            found.append(key)
    if not found:
        raise ValueError(f"the set has no key for {', '.join(ALGORITHMS)}")
    return found
