"""The seal of stored secrets: AES-256-GCM with this machine's key.

Invariant: the name, scope, fields and time of a secret are authenticated with it, so no stored secret can be swapped or
changed unnoticed, wherever it is stored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable
from arclog.ports.secrets import SealedSecret, SecretInfo
from arclog.secrets.files import read_owned, signature, write_new

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


# The key that seals secrets: in a file that only its owner may read, or in the system's keyring. The key belongs to the
# machine; machines that share a store need the same key.


KEY_FILE = "secrets.key"
KEY_BYTES = 32
_SERVICE = "arclog"


class KeySource(Protocol):
    #: name of the place in messages
    place: str

    def load(self) -> bytes | None:
        """Return the key; None if there is none yet."""

    def create(self) -> bytes:
        """Create a key if there is none. If another process created one meanwhile, return that key."""

    def signature(self) -> object:
        """Return a value that changes with the key; None if that is unknown."""


def key_source(settings: Settings, home: Path) -> KeySource:
    if settings.text("secrets.key_source") == "keyring":
        return SystemKeyring(str(home.resolve()))
    configured = settings.text("secrets.key_file")
    return KeyFile(Path(configured) if configured else home / KEY_FILE)


class KeyFile:
    """A key in base64, in a file that only its owner may read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = str(path)

    def load(self) -> bytes | None:
        try:
            body, mode, owner = read_owned(self._path, 4096)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise SecretUnavailable(
                f"the key file {self._path} cannot be read: {problem.strerror or problem}"
            ) from None
        # As OpenSSH does: the owner of the file must keep others out. A file that the platform provides (Kubernetes,
        # Docker, systemd) has another owner and the permissions that this process needs to read it.
        if mode & 0o077 and owner == os.geteuid():
            message = f"the key file {self._path} can be read by others (mode {mode & 0o777:04o})"
            raise SecretUnavailable(f"{message}; run: chmod 600 {self._path}")
        return _decoded(body, self.place)

    def signature(self) -> object:
        return signature(self._path)

    def create(self) -> bytes:
        key = os.urandom(KEY_BYTES)
        try:
            self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
            write_new(self._path, base64.b64encode(key) + b"\n")
        except FileExistsError:
            if (loaded := self.load()) is not None:
                return loaded
            raise SecretUnavailable(
                f"the key file {self._path} is being created and removed by other processes; try again"
            ) from None
        except OSError as problem:
            raise SecretUnavailable(
                f"the key file {self._path} cannot be made: {problem.strerror or problem}"
            ) from None
        return key


class SystemKeyring:
    """A key in the system's keyring of the user (package `keyring`)."""

    def __init__(self, account: str) -> None:
        self._account = account
        self.place = f"the system's keyring (service {_SERVICE}, account {account})"

    def load(self) -> bytes | None:
        password = self._ask("get_password", _SERVICE, self._account)
        return None if password is None else _decoded(str(password).encode(), self.place)

    def signature(self) -> object:
        return None

    def create(self) -> bytes:
        key = os.urandom(KEY_BYTES)
        self._ask("set_password", _SERVICE, self._account, base64.b64encode(key).decode())
        return key

    def _ask(self, method: str, *words: str) -> Any:
        try:
            import keyring  # type: ignore[import-not-found,unused-ignore]  # an optional package
        except ImportError:
            message = "secrets.key_source is keyring, and the package keyring is not installed"
            raise SecretUnavailable(f"{message}; run: pip install keyring, or set secrets.key_source to file") from None
        try:
            return getattr(keyring, method)(*words)
        except Exception as problem:  # noqa: BLE001 - every backend has errors of its own
            message = f"the system's keyring cannot be used: {type(problem).__name__}"
            raise SecretUnavailable(f"{message}; set secrets.key_source to file") from None


def _decoded(body: bytes, place: str) -> bytes:
    try:
        key = base64.b64decode(body.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise SecretUnavailable(
            f"{place} does not contain a key of secrets (32 bytes in base64); restore it from a backup"
        )
    return key


_FORMAT = 1
_NONCE_BYTES = 12


class Seal:
    """Seals and opens with the key of one source."""

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self.place = source.place
        self._signature: object = None
        self._key: bytes | None = None

    def key(self) -> bytes | None:
        """Return the current key; None if there is none. Raises SecretUnavailable if the key is invalid."""
        now = self._source.signature()
        if now is None or now != self._signature:
            self._key = self._source.load()
            self._signature = now
        return self._key

    def create_key(self) -> bytes:
        """Create the key."""
        return self._source.create()

    def sealed(self, key: bytes, info: SecretInfo, value: str) -> SealedSecret:
        nonce = os.urandom(_NONCE_BYTES)
        return SealedSecret(info, key_id(key), nonce, _cipher(key).encrypt(nonce, value.encode(), _bound(info)))

    def opened(self, sealed: SealedSecret, place: str) -> str:
        """Decrypt a secret. `place` is its location, for messages."""
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
        """Return why the secrets of `place`, sealed with the key of this id, cannot be decrypted, or ''."""
        key = self.key()
        instead = f"or remove the secrets of {place} and set them again (arclog secret rm, arclog secret set)"
        if key is None:
            message = f"the secrets of {place} are sealed, and their key is not at {self.place}"
            return f"{message}; restore it there, or name it in secrets.key_file, {instead}"
        if kept_with != key_id(key):
            keys = f"({kept_with}) than that of {self.place} ({key_id(key)})"
            message = f"the secrets of {place} are sealed with another key {keys}"
            return f"{message}; restore the right one, or name it in secrets.key_file, {instead}"
        return ""


def key_id(key: bytes) -> str:
    """Return an identifier of a key that reveals nothing about it."""
    return hashlib.sha256(b"arclog secrets key\0" + key).hexdigest()[:16]


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _bound(info: SecretInfo) -> bytes:
    return msgspec.json.encode([_FORMAT, info])
