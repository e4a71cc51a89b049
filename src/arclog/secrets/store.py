"""The local store: the sealed secrets of one home in one file. Writers take a lock and replace the file atomically."""

from __future__ import annotations

import asyncio
import base64
import binascii
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.errors import Conflict, SecretUnavailable
from arclog.ports.secrets import SealedSecret, SecretBook, SecretInfo
from arclog.secrets.files import read_small, replace, signature
from arclog.secrets.naming import described, not_kept, widening
from arclog.secrets.seal import Seal, key_id, key_source

STORE_FILE = "secrets.json"
LOCK_FILE = "secrets.lock"
_FORMAT = 1
#: Maximum size of the file; enough for thousands of secrets.
_MOST_BYTES = 256 * 1024 * 1024


class _Sealed(Struct, frozen=True):
    info: SecretInfo
    nonce: str
    data: str


class _Body(Struct):
    format: int
    #: id of the key that seals all of them
    key: str
    secrets: list[_Sealed]


class LocalStore:
    """The secrets of one home. Calls may block."""

    def __init__(self, home: Path, settings: Settings) -> None:
        self._home = home
        self.path = home / STORE_FILE
        self.seal = Seal(key_source(settings, home))
        self._most = settings.integer("secrets.max_bytes")
        self._signature: tuple[int, ...] | None = None
        self._by_scope: dict[tuple[str, str], SealedSecret] = {}

    def put(self, name: str, scope: str, value: str, at: str) -> SecretInfo:
        """Store a secret, replacing one of the same name and scope."""
        info = described(name, scope, value, at, self._most)
        with self._locked():
            body = self._read()
            if wrong := self._wrong(body):
                raise SecretUnavailable(wrong)
            key = self.seal.key() or self.seal.create_key()
            sealed = self.seal.sealed(key, info, value)
            there = body.secrets if body is not None else []
            kept = [secret for secret in there if (secret.info.name, secret.info.scope) != (name, scope)]
            added = _Sealed(info, _text(sealed.nonce), _text(sealed.data))
            self._write(_Body(_FORMAT, key_id(key), [*kept, added]))
        return info

    def remove(self, name: str, scope: str) -> None:
        with self._locked():
            body = self._read()
            kept = (
                [secret for secret in body.secrets if (secret.info.name, secret.info.scope) != (name, scope)]
                if body
                else []
            )
            if body is None or len(kept) == len(body.secrets):
                raise not_kept(name, scope)
            self._write(_Body(_FORMAT, body.key, kept))

    def infos(self) -> list[SecretInfo]:
        body = self._read()
        return (
            sorted((secret.info for secret in body.secrets), key=lambda info: (info.name, info.scope)) if body else []
        )

    def find(self, name: str, scope: str) -> SealedSecret | None:
        """Return the secret of that name that is valid in the scope; the narrowest wins."""
        secrets = self._as_it_is()
        return next((secrets[name, wider] for wider in widening(scope) if (name, wider) in secrets), None)

    def problem(self) -> str:
        """Return why the stored secrets cannot be decrypted, or ''."""
        return self._wrong(self._read())

    def _wrong(self, body: _Body | None) -> str:
        return self.seal.problem(body.key, str(self.path)) if body is not None and body.secrets else ""

    def _as_it_is(self) -> dict[tuple[str, str], SealedSecret]:
        """Return the secrets by name and scope; the file is read again when it has changed."""
        now = signature(self.path)
        if now is None or now != self._signature:
            body = self._read() or _Body(_FORMAT, "", [])
            self._by_scope = {
                (secret.info.name, secret.info.scope): SealedSecret(
                    secret.info, body.key, _bytes(secret.nonce), _bytes(secret.data)
                )
                for secret in body.secrets
            }
            self._signature = now
        return self._by_scope

    def _read(self) -> _Body | None:
        try:
            body = read_small(self.path, _MOST_BYTES)
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
            self._home.mkdir(0o700, parents=True, exist_ok=True)
            handle = os.open(self._home / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise SecretUnavailable(f"{self._home} cannot be written: {problem.strerror or problem}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            for left_behind in self._home.glob(f".{STORE_FILE}.*"):  # left by a writer that was killed
                left_behind.unlink(missing_ok=True)
            yield
        finally:
            os.close(handle)


class HomeVault:
    """Implements `ports.secrets.Vault` with the local store of a home."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self.place = str(store.path)

    async def put(self, name: str, scope: str, value: str, at: str) -> SecretInfo:
        return await asyncio.to_thread(self._store.put, name, scope, value, at)

    async def remove(self, name: str, scope: str) -> None:
        await asyncio.to_thread(self._store.remove, name, scope)

    async def infos(self) -> list[SecretInfo]:
        return await asyncio.to_thread(self._store.infos)

    async def find(self, name: str, scope: str) -> SealedSecret | None:
        return self._store.find(name, scope)  # only checks the file's metadata: a thread would not be faster

    async def problem(self) -> str:
        return await asyncio.to_thread(self._store.problem)


def _text(body: bytes) -> str:
    return base64.b64encode(body).decode()


def _bytes(text: str) -> bytes:
    """Decode base64. Invalid text becomes b'', which fails to decrypt like any other changed data."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


# The secrets of servers that share a store: stored there, sealed with a key that each server has.
#
# A server whose key is missing, or differs from that of the others, neither decrypts nor replaces any secret and
# reports the problem.


log = logging.getLogger("arclog.secrets")


class SharedVault:
    """Implements `ports.secrets.Vault`. Only the key is cached, until its file changes."""

    #: The log of a run must not name the exact location.
    place = "the store"

    def __init__(self, book: SecretBook, seal: Seal, settings: Settings) -> None:
        self._book = book
        self._seal = seal
        self._most = settings.integer("secrets.max_bytes")

    async def put(self, name: str, scope: str, value: str, at: str) -> SecretInfo:
        info = described(name, scope, value, at, self._most)
        key = await asyncio.to_thread(self._seal.key)
        if key is None:
            # Stored secrets already have a key: a new one could not decrypt them.
            await self._require_key()
            key = await asyncio.to_thread(self._seal.create_key)
            log.warning(
                "made the key of the secrets that %s keeps, at %s: provide it to all servers and workers "
                "(secrets.key_file), and back it up; without it the secrets cannot be recovered",
                self.place,
                self._seal.place,
            )
        try:
            await self._book.put_secret(self._seal.sealed(key, info, value))
        except Conflict:
            await self._require_key()
            raise
        return info

    async def remove(self, name: str, scope: str) -> None:
        if not await self._book.remove_secret(name, scope):
            raise not_kept(name, scope)

    async def infos(self) -> list[SecretInfo]:
        return await self._book.secrets()

    async def find(self, name: str, scope: str) -> SealedSecret | None:
        return await self._book.secret(name, tuple(widening(scope)))

    async def problem(self) -> str:
        kept_with = await self._book.secrets_key()
        return await asyncio.to_thread(self._seal.problem, kept_with, self.place) if kept_with else ""

    async def _require_key(self) -> None:
        if wrong := await self.problem():
            raise SecretUnavailable(wrong)
