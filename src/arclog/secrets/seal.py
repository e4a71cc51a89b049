"""The seal: AES-256-GCM with this machine's key.

Law: what a secret is called, where it is valid, what fields it has and when it was set are part of what is authenticated,
so nothing that is kept can be swapped or changed unnoticed, wherever it is kept.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import msgspec

from arclog.model.errors import SecretUnavailable
from arclog.ports.secrets import SealedSecret, SecretInfo
from arclog.secrets.key import KeySource

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_FORMAT = 1
_NONCE_BYTES = 12


class Seal:
    """Seals and opens with the key of one source."""

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self.place = source.place
        self._looked: object = None
        self._key: bytes | None = None

    def key(self) -> bytes | None:
        """The key as it is now; None when there is none. Raises SecretUnavailable when there is something else."""
        now = self._source.signature()
        if now is None or now != self._looked:
            self._key = self._source.load()
            self._looked = now
        return self._key

    def made(self) -> bytes:
        """A key where there was none."""
        return self._source.create()

    def sealed(self, key: bytes, info: SecretInfo, value: str) -> SealedSecret:
        nonce = os.urandom(_NONCE_BYTES)
        return SealedSecret(info, key_id(key), nonce, _cipher(key).encrypt(nonce, value.encode(), _bound(info)))

    def opened(self, sealed: SealedSecret, place: str) -> str:
        """What is sealed; `place` is where it was found."""
        from cryptography.exceptions import InvalidTag

        wrong = self.problem(sealed.key, place)
        key = self.key()
        if wrong or key is None:
            raise SecretUnavailable(wrong)
        name = sealed.info.name
        try:
            return _cipher(key).decrypt(sealed.nonce, sealed.data, _bound(sealed.info)).decode()
        except (InvalidTag, ValueError):
            message = f"the secret {name} in {place} was changed or damaged"
            raise SecretUnavailable(f"{message}; run: arclog secret set {name}") from None

    def problem(self, kept_with: str, place: str) -> str:
        """What keeps the secrets of a place, sealed with the key of this id, from being opened; '' when nothing does."""
        key = self.key()
        instead = f"or remove the secrets of {place} and set them again (arclog secret rm, arclog secret set)"
        if key is None:
            message = f"what {place} keeps is sealed, and its key is not at {self.place}"
            return f"{message}; restore it there, or name it in secrets.key_file, {instead}"
        if kept_with != key_id(key):
            message = (
                f"what {place} keeps is sealed with another key ({kept_with}) than that of {self.place} ({key_id(key)})"
            )
            return f"{message}; restore the right one, or name it in secrets.key_file, {instead}"
        return ""


def key_id(key: bytes) -> str:
    """Tells keys apart, and nothing of a key."""
    return hashlib.sha256(b"arclog secrets key\0" + key).hexdigest()[:16]


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _bound(info: SecretInfo) -> bytes:
    return msgspec.json.encode([_FORMAT, info])
