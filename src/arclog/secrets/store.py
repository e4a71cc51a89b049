"""The local store: secrets in one file, each encrypted with AES-256-GCM.

Law: what a secret is called, where it is valid, what fields it has and when it was set are part of what is authenticated,
so nothing in the file can be swapped or changed unnoticed. Writers take a lock and replace the file at once.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from arclog.model.errors import NotFound, RequestRejected, SecretUnavailable
from arclog.model.settings import Settings
from arclog.ports.secrets import SecretInfo, checked_secret
from arclog.secrets.files import read_small, replace, signature
from arclog.secrets.key import key_source

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

STORE_FILE = "secrets.json"
LOCK_FILE = "secrets.lock"
_FORMAT = 1
_SCOPE = re.compile(r"[^/\s]{1,128}(/[^/\s]{1,128}){0,2}\Z")
#: Of the whole file: enough for thousands of secrets, and a bound on what is read.
_MOST_BYTES = 256 * 1024 * 1024


class _Sealed(Struct, frozen=True):
    info: SecretInfo
    nonce: str
    data: str


class _Body(Struct):
    format: int
    #: tells a wrong key from a damaged file
    key: str
    secrets: list[_Sealed]


class LocalStore:
    """The secrets of one home."""

    def __init__(self, home: Path, settings: Settings) -> None:
        self._home = home
        self.path = home / STORE_FILE
        self._key = key_source(settings, home)
        self._most = settings.integer("secrets.max_bytes")
        self._looked: tuple[object, object] | None = None
        self._found: tuple[dict[tuple[str, str], _Sealed], bytes] = {}, b""

    def put(self, name: str, scope: str, value: str, at: str) -> SecretInfo:
        """Keep a secret, in place of one of the same name and scope."""
        checked_secret(name)
        if not _SCOPE.match(scope):
            raise RequestRejected(f"{scope[:400]!r} is no scope: TENANT, TENANT/PROJECT or TENANT/PROJECT/ENVIRONMENT")
        if not value:
            raise RequestRejected(f"the secret {name} is empty")
        if len(value.encode()) > self._most:
            raise RequestRejected(f"the secret {name} is larger than {self._most} bytes (secrets.max_bytes)")
        info = SecretInfo(name, scope, tuple(json_fields(value) or ()), at)
        with self._locked():
            body = self._read()
            key = self._key_for(body, create=True)
            if body is None:
                body = _Body(_FORMAT, _key_id(key), [])
            nonce = os.urandom(12)
            sealed = _Sealed(info, _text(nonce), _text(_cipher(key).encrypt(nonce, value.encode(), _bound(info))))
            kept = [one for one in body.secrets if (one.info.name, one.info.scope) != (name, scope)]
            self._write(_Body(_FORMAT, body.key, [*kept, sealed]))
        return info

    def remove(self, name: str, scope: str) -> None:
        with self._locked():
            body = self._read()
            kept = [one for one in body.secrets if (one.info.name, one.info.scope) != (name, scope)] if body else []
            if body is None or len(kept) == len(body.secrets):
                raise NotFound(
                    f"there is no secret {name} in scope {scope}; `arclog secret list` shows those there are"
                )
            self._write(_Body(_FORMAT, body.key, kept))

    def infos(self) -> list[SecretInfo]:
        body = self._read()
        return sorted((one.info for one in body.secrets), key=lambda info: (info.name, info.scope)) if body else []

    def get(self, name: str, scope: str) -> str:
        """The secret of that name that is valid in the scope; the narrowest wins."""
        found, key = self._as_it_is()
        for wider in _widening(scope):
            if (name, wider) in found:
                return self._opened(found[name, wider], key)
        raise SecretUnavailable(f"there is no secret {name} in scope {scope}; run: arclog secret set {name}")

    def _as_it_is(self) -> tuple[dict[tuple[str, str], _Sealed], bytes]:
        """The secrets by name and scope, and the key; read again when one of the files is another."""
        now = signature(self.path), self._key.signature()
        if self._looked is None or now != self._looked or None in now:
            body = self._read()
            found = {(one.info.name, one.info.scope): one for one in body.secrets} if body else {}
            self._found = found, self._key_for(body) if found else b""
            self._looked = now
        return self._found

    def _opened(self, sealed: _Sealed, key: bytes) -> str:
        from cryptography.exceptions import InvalidTag

        try:
            nonce, data = base64.b64decode(sealed.nonce, validate=True), base64.b64decode(sealed.data, validate=True)
            return _cipher(key).decrypt(nonce, data, _bound(sealed.info)).decode()
        except (InvalidTag, binascii.Error, ValueError):
            message = f"the secret {sealed.info.name} in {self.path} was changed or damaged"
            raise SecretUnavailable(f"{message}; run: arclog secret set {sealed.info.name}") from None

    def _key_for(self, body: _Body | None, *, create: bool = False) -> bytes:
        key = self._key.load()
        if key is None:
            if body is not None and body.secrets:
                message = f"{self.path} is encrypted, and its key is not at {self._key.place}"
                raise SecretUnavailable(f"{message}; restore it, or remove {self.path} and set the secrets again")
            if not create:
                raise SecretUnavailable(f"there is no key at {self._key.place}; `arclog secret set` makes one")
            key = self._key.create()
            if body is not None:
                body.key = _key_id(key)
        elif body is not None and body.key != _key_id(key):
            if not body.secrets:
                body.key = _key_id(key)
            else:
                message = f"{self.path} is encrypted with another key than that of {self._key.place}"
                raise SecretUnavailable(f"{message}; restore the right one, or remove {self.path} and set them again")
        return key

    def _read(self) -> _Body | None:
        try:
            body, _ = read_small(self.path, _MOST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise SecretUnavailable(f"{self.path} cannot be read: {problem.strerror or problem}") from None
        try:
            read = msgspec.json.decode(body, type=_Body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            message = f"{self.path} is damaged"
            raise SecretUnavailable(
                f"{message}; restore it from a backup, or remove it and set the secrets again"
            ) from None
        if read.format != _FORMAT:
            raise SecretUnavailable(f"{self.path} has format {read.format}; this arclog reads format {_FORMAT}")
        return read

    def _write(self, body: _Body) -> None:
        try:
            replace(self.path, msgspec.json.format(msgspec.json.encode(body), indent=1) + b"\n")
        except OSError as problem:
            raise SecretUnavailable(f"{self.path} cannot be written: {problem.strerror or problem}") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._home / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise SecretUnavailable(f"{self._home} cannot be written: {problem.strerror or problem}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            for left_behind in self._home.glob(f".{STORE_FILE}.*"):  # by a writer that was killed
                left_behind.unlink(missing_ok=True)
            yield
        finally:
            os.close(handle)


def json_fields(text: str) -> dict[str, object] | None:
    """The fields of a secret that is a JSON object; None of any other text."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return value if isinstance(value, dict) else None


def _widening(scope: str) -> Iterator[str]:
    while scope:
        yield scope
        scope = scope.rpartition("/")[0]


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _bound(info: SecretInfo) -> bytes:
    return msgspec.json.encode([_FORMAT, info])


def _key_id(key: bytes) -> str:
    return hashlib.sha256(b"arclog secrets key\0" + key).hexdigest()[:16]


def _text(body: bytes) -> str:
    return base64.b64encode(body).decode()
