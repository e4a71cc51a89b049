"""Secrets: where the credentials that a playbook's keychain declares come from.

Rules:
- A keychain entry is data from the playbook: `name`, `kind` and the kind's fields. It never holds a secret itself.
- `check` answers without giving anything away and before a run starts; `resolve` is called by a worker, at use, for
  each attempt, so a rotated secret is used from the next attempt on.
- An entry that cannot be resolved raises `SecretUnavailable`, which names the entry and the remedy, never a value.
- A secret is looked up within the scope (tenant/project/environment) of the execution.
- Nothing that `resolve` gives is ever written anywhere; `Credential.secrets` lists the texts that must be redacted.
- What is kept is kept sealed, and the key is never beside it: it belongs to the machine, not to the place.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from arclog.model.errors import RequestRejected

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}\Z")


class Credential(Struct, frozen=True):
    """A resolved keychain entry."""

    name: str
    #: env file secret secret_manager bearer basic postgres_credential oauth2
    kind: str
    #: the fields that templates read as `keychain.<name>.<field>`; a scalar secret is `value`
    fields: Mapping[str, Any]
    #: the texts among them that must never be seen
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Credential({self.name!r}, {self.kind!r})"


class Secrets(Protocol):
    async def check(self, entries: Sequence[Mapping[str, Any]], scope: str) -> list[str]:
        """The reasons why these entries cannot be resolved, one message per entry; [] if all can be."""

    async def resolve(self, entry: Mapping[str, Any], scope: str) -> Credential:
        """The entry's credential as it is now."""

    async def refused(self, entry: Mapping[str, Any], scope: str) -> None:
        """The other side did not accept what `resolve` gave: do not give it from a cache again."""

    async def close(self) -> None: ...


class SecretInfo(Struct, frozen=True):
    """Public metadata of a secret."""

    name: str
    #: tenant, tenant/project or tenant/project/environment
    scope: str
    #: the field names of a JSON object; none of a plain text
    fields: tuple[str, ...]
    set_at: str


def checked_secret(name: str) -> str:
    """A name that a kept secret may have. Raises RequestRejected."""
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
    """Sealed secrets in a store that several servers share: each sees what another one did with its next call.

    Rules (`arclog.testing.conformance.secrets` proves them):
    - There is one secret of a name and scope; a later one takes its place, at once and durably.
    - All are sealed with one key, whoever comes first with which: another key's is refused as long as any is kept.
    - Nothing here can open one.
    """

    async def put_secret(self, secret: SealedSecret) -> None:
        """Keep it, in place of one of the same name and scope. Raises Conflict when those kept have another key."""

    async def secret(self, name: str, scopes: Sequence[str]) -> SealedSecret | None:
        """That of the longest of these scopes that has one of this name."""

    async def secrets(self) -> list[SecretInfo]:
        """All that are kept, by name and scope."""

    async def secrets_key(self) -> str:
        """The key that all of them are sealed with; '' when there are none."""

    async def remove_secret(self, name: str, scope: str) -> bool:
        """Forget it; whether it was there."""


class SecretSource(Protocol):
    """Source of sealed secrets."""

    #: its name in messages
    place: str

    async def find(self, name: str, scope: str) -> SealedSecret | None:
        """The secret of that name that is valid in the scope; the narrowest wins."""


class SecretPaths(Protocol):
    """Names of secrets in a secret manager."""

    def of(self, name: str, scope: str) -> Iterator[str]:
        """The possible names of a secret, narrowest scope first. Raises SecretUnavailable for an invalid name."""


class SecretManager(Protocol):
    """A service that keeps secrets for others: it is only read.

    Failures are `SecretUnavailable`, whose kind is `config` (what the settings or the playbook say is wrong, or there is no
    such secret), `auth` (the service does not let this process in, or not read) or `connection` (retryable).
    """

    #: its name in messages
    place: str

    @property
    def paths(self) -> SecretPaths: ...

    async def read(self, path: str) -> str:
        """The text of a secret as it is now; one with several fields is a JSON object."""

    async def check(self) -> None:
        """Raises SecretUnavailable when the service cannot be reached, or does not know this process."""

    def forget(self) -> None:
        """The service rejected this process: log in again before the next request."""

    async def close(self) -> None: ...


class Vault(SecretSource, Protocol):
    """A store of secrets. Values can only be read through `Secrets.resolve`."""

    async def put(self, name: str, scope: str, value: str, at: str) -> SecretInfo:
        """Keep a secret, in place of one of the same name and scope. Raises RequestRejected, or SecretUnavailable when
        it cannot be sealed as the others are.
        """

    async def remove(self, name: str, scope: str) -> None:
        """Forget it; that needs no key. Raises NotFound."""

    async def infos(self) -> list[SecretInfo]:
        """All that are kept, by name."""

    async def problem(self) -> str:
        """The reason why this machine cannot unseal the stored secrets, with a remedy; '' if it can."""


class CredentialApi(Protocol):
    """Management of secrets: they can be stored, listed by name and removed, but never read.

    A scope is TENANT, TENANT/PROJECT or TENANT/PROJECT/ENVIRONMENT; '' is the place's own.
    """

    async def put(self, name: str, value: str, scope: str = "") -> SecretInfo:
        """Keep a secret, in place of one of the same name and scope. Raises RequestRejected, or NotFound for a scope
        that is not there for the caller.
        """

    async def list(self) -> builtins.list[SecretInfo]:
        """All that the caller may know of, by name."""

    async def remove(self, name: str, scope: str = "") -> str:
        """Forget it; the scope that it was kept for. Raises NotFound."""
