"""The key that secrets are sealed with: in a file of its owner's alone, or in the keyring of the system. It belongs to the
machine, also where what it seals is in a store that several machines share: then each is given the same.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any, Protocol

from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable
from arclog.secrets.files import read_owned, signature, write_new

KEY_FILE = "secrets.key"
KEY_BYTES = 32
_SERVICE = "arclog"


class KeySource(Protocol):
    #: what messages call it
    place: str

    def load(self) -> bytes | None:
        """The key; None when there is none yet."""

    def create(self) -> bytes:
        """Make a key where there is none; that of somebody who was faster, if there is one now."""

    def signature(self) -> object:
        """Changes with the key; None when that cannot be told."""


def key_source(settings: Settings, home: Path) -> KeySource:
    if settings.text("secrets.key_source") == "keyring":
        return SystemKeyring(str(home.resolve()))
    named = settings.text("secrets.key_file")
    return KeyFile(Path(named) if named else home / KEY_FILE)


class KeyFile:
    """A key in base64, in a file that nobody else may read."""

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
        # As OpenSSH has it: who owns the file must keep others out. One that is given to us by somebody else (Kubernetes,
        # Docker, systemd) has the rights that it takes for us to read it.
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
            if (found := self.load()) is not None:
                return found
            raise SecretUnavailable(f"the key file {self._path} comes and goes; try again") from None
        except OSError as problem:
            raise SecretUnavailable(
                f"the key file {self._path} cannot be made: {problem.strerror or problem}"
            ) from None
        return key


class SystemKeyring:
    """A key that the system keeps for its user (package `keyring`)."""

    def __init__(self, account: str) -> None:
        self._account = account
        self.place = f"the system's keyring (service {_SERVICE}, account {account})"

    def load(self) -> bytes | None:
        found = self._ask("get_password", _SERVICE, self._account)
        return None if found is None else _decoded(str(found).encode(), self.place)

    def signature(self) -> object:
        return None

    def create(self) -> bytes:
        key = os.urandom(KEY_BYTES)
        self._ask("set_password", _SERVICE, self._account, base64.b64encode(key).decode())
        return key

    def _ask(self, what: str, *words: str) -> Any:
        try:
            import keyring  # type: ignore[import-not-found,unused-ignore]  # an optional package
        except ImportError:
            message = "secrets.key_source is keyring, and the package keyring is not installed"
            raise SecretUnavailable(f"{message}; run: pip install keyring, or set secrets.key_source to file") from None
        try:
            return getattr(keyring, what)(*words)
        except Exception as problem:  # noqa: BLE001 - every backend has errors of its own
            message = f"the system's keyring cannot be used: {type(problem).__name__}"
            raise SecretUnavailable(f"{message}; set secrets.key_source to file") from None


def _decoded(body: bytes, place: str) -> bytes:
    try:
        key = base64.b64decode(body.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise SecretUnavailable(f"{place} holds no key of secrets (32 bytes in base64); restore it from a backup")
    return key
