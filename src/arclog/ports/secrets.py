"""Secrets: the sources of the credentials that a playbook's keychain declares.

Rules:
- A keychain entry is data from the playbook: `name`, `kind` and the kind's fields. It never contains a secret.
- `check` runs before a run starts and reveals nothing; a worker calls `resolve` for each attempt, so a rotated secret
  is used from the next attempt on.
- An entry that cannot be resolved raises `SecretUnavailable`, which names the entry and the remedy, never a value.
- A secret is looked up within the scope (tenant/project/environment) of the execution.
- The result of `resolve` is never written anywhere; `Credential.secrets` lists the texts that must be redacted.
- Stored secrets are sealed, and the key is never stored with them: it belongs to the machine.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from arclog.model.data.lazy import pattern
from arclog.model.errors import RequestRejected

_NAME = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}\Z")


class Credential(Struct, frozen=True):
    """A resolved keychain entry."""

    name: str
    #: env file secret secret_manager bearer basic postgres_credential oauth2
    kind: str
    #: the fields that templates read as `keychain.<name>.<field>`; a scalar secret is `value`
    fields: Mapping[str, Any]
    #: the texts among them that must be redacted
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Credential({self.name!r}, {self.kind!r})"


class Secrets(Protocol):
    async def check(self, entries: Sequence[Mapping[str, Any]], scope: str) -> list[str]:
        """Return the reasons why these entries cannot be resolved, one message per entry; [] if all can be."""

    async def resolve(self, entry: Mapping[str, Any], scope: str) -> Credential:
        """Return the current credential of the entry."""

    async def refused(self, entry: Mapping[str, Any], scope: str) -> None:
        """Remove a credential that was rejected from the cache."""

    async def close(self) -> None: ...


class SecretInfo(Struct, frozen=True):
    """Public metadata of a secret."""

    name: str
    #: tenant, tenant/project or tenant/project/environment
    scope: str
    #: the field names of a JSON object; empty for plain text
    fields: tuple[str, ...]
    set_at: str


def checked_secret(name: str) -> str:
    """Return the name of a secret. Raises RequestRejected if it is invalid."""
    if not _NAME.match(name):
        raise RequestRejected(f"{name[:140]!r} cannot be the name of a secret: letters, digits, _ . - (at most 128)")
    return name


class SealedSecret(Struct, frozen=True):
    """A secret in its stored form. Without the key, only `info` is readable."""

    info: SecretInfo
    #: id of the key that it was sealed with, to distinguish a wrong key from damage
    key: str
    nonce: bytes
    data: bytes

    def __repr__(self) -> str:
        return f"SealedSecret({self.info.name!r}, {self.info.scope!r})"


@runtime_checkable
class SecretBook(Protocol):
    """Sealed secrets in a store that several servers share: each server sees the changes of others with its next call.

    Rules (`arclog.testing.conformance.secrets` checks them):
    - There is one secret per name and scope; a later one replaces it, at once and durably.
    - All are sealed with the key of the first one: a secret with another key is refused while any is stored.
    - Nothing here can decrypt one.
    """

    async def put_secret(self, secret: SealedSecret) -> None:
        """Store a secret, replacing one of the same name and scope.

        Raises Conflict if the stored ones have another key.
        """

    async def secret(self, name: str, scopes: Sequence[str]) -> SealedSecret | None:
        """Return the secret of this name in the longest of these scopes that has one."""

    async def secrets(self) -> list[SecretInfo]:
        """Return all stored secrets, by name and scope."""

    async def secrets_key(self) -> str:
        """Return the id of the key that seals all of them; '' if there are none."""

    async def remove_secret(self, name: str, scope: str) -> bool:
        """Remove a secret. Returns whether it existed."""


class SecretSource(Protocol):
    """Source of sealed secrets."""

    #: its name in messages
    place: str

    async def find(self, name: str, scope: str) -> SealedSecret | None:
        """Return the secret of that name that is valid in the scope; the narrowest wins."""


class SecretPaths(Protocol):
    """Names of secrets in a secret manager."""

    def of(self, name: str, scope: str) -> Iterator[str]:
        """Iterate over the possible names of a secret, narrowest scope first.

        Raises SecretUnavailable for an invalid name.
        """


class SecretManager(Protocol):
    """A read-only service that stores secrets.

    Failures are `SecretUnavailable` with the kind `config` (a setting or the playbook is wrong, or the secret does not
    exist), `auth` (the service rejects this process, or its access) or `connection` (retryable).
    """

    #: its name in messages
    place: str

    @property
    def paths(self) -> SecretPaths: ...

    async def read(self, path: str) -> str:
        """Return the current text of a secret; one with several fields is a JSON object."""

    async def check(self) -> None:
        """Raise SecretUnavailable if the service cannot be reached, or rejects this process."""

    def forget(self) -> None:
        """Log in again before the next request, since the service rejected this process."""

    async def close(self) -> None: ...


class Vault(SecretSource, Protocol):
    """A store of secrets. Values can only be read through `Secrets.resolve`."""

    async def put(self, name: str, scope: str, value: str, at: str) -> SecretInfo:
        """Store a secret, replacing one of the same name and scope.

        Raises RequestRejected, or SecretUnavailable if it cannot be sealed like the others.
        """

    async def remove(self, name: str, scope: str) -> None:
        """Remove a secret; needs no key. Raises NotFound."""

    async def infos(self) -> list[SecretInfo]:
        """Return all stored secrets, by name."""

    async def problem(self) -> str:
        """Return why this machine cannot unseal the stored secrets, with a remedy; '' if it can."""


class CredentialApi(Protocol):
    """Management of secrets: they can be stored, listed by name and removed, but never read.

    A scope is TENANT, TENANT/PROJECT or TENANT/PROJECT/ENVIRONMENT; '' for the default scope.
    """

    async def put(self, name: str, value: str, scope: str = "") -> SecretInfo:
        """Store a secret, replacing one of the same name and scope.

        Raises RequestRejected, or NotFound for a scope that does not exist for the caller.
        """

    async def list(self) -> builtins.list[SecretInfo]:
        """Return all secrets that the caller may list, by name."""

    async def remove(self, name: str, scope: str = "") -> str:
        """Remove a secret. Returns the scope that it was stored for. Raises NotFound."""
