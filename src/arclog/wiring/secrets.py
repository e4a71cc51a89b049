"""Chooses where the secrets of this process are stored and how they are opened. Loaded when a playbook first has a
keychain, since most runs need none of it.

A store that several servers share also has their secrets; otherwise they are in a file of the home. Each machine has
the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError
from arclog.ports.clock import Clock
from arclog.ports.secrets import Credential, SecretBook, SecretManager, Secrets, SecretSource, Vault
from arclog.ports.storage.store import Store


def choose_vault(settings: Settings, store: Store | None = None) -> Vault:
    """The vault of secrets: in this store if several servers share it, else in the home."""
    home = Path(settings.text("home"))
    if store is not None and isinstance(store, SecretBook):
        from arclog.secrets.seal import Seal, key_source
        from arclog.secrets.store import SharedVault

        return SharedVault(store, Seal(key_source(settings, home)), settings)
    from arclog.secrets.store import HomeVault, LocalStore

    return HomeVault(LocalStore(home, settings))


def choose_manager(settings: Settings, clock: Clock) -> SecretManager | None:
    """The secret manager of `kind: secret_manager`; None if it is the vault itself."""
    match settings.text("secrets.manager"):
        case "vault":
            from arclog.secrets.managers.vault import Vault as HashicorpVault

            return HashicorpVault(settings, clock)
        case "aws":
            from arclog.secrets.managers.aws import AwsSecretsManager

            return AwsSecretsManager(settings, clock)
        case "google":
            from arclog.secrets.managers.google import GoogleSecretManager

            return GoogleSecretManager(settings, clock)
        case "azure":
            from arclog.secrets.managers.azure import AzureKeyVault

            return AzureKeyVault(settings, clock)
    return None


def left_in_home(settings: Settings, vault: Vault) -> str:
    """A message about secrets in the home that are not used, because secrets are stored elsewhere; '' if there are
    none.
    """
    from arclog.secrets.store import LocalStore

    local = LocalStore(Path(settings.text("home")), settings)
    if vault.place == str(local.path) or not local.path.exists():
        return ""
    try:
        names = ", ".join(sorted({info.name for info in local.infos()}))
    except ArclogError as problem:
        return f"{problem}; {vault.place} keeps the secrets now"
    return f"{local.path} holds secrets that are not used, since {vault.place} keeps them: {names}" if names else ""


class SecretsOnDemand:
    """Implements `ports.secrets.Secrets`."""

    def __init__(self, settings: Settings, clock: Clock, sources: Callable[[], Sequence[SecretSource]]) -> None:
        self._settings = settings
        self._clock = clock
        self._sources = sources

    @cached_property
    def _secrets(self) -> Secrets:
        from arclog.secrets.keychain import LocalSecrets
        from arclog.secrets.seal import Seal, key_source

        seal = Seal(key_source(self._settings, Path(self._settings.text("home"))))
        return LocalSecrets(
            self._sources(), seal, self._settings, self._clock, lambda: choose_manager(self._settings, self._clock)
        )

    async def check(self, entries: Sequence[Mapping[str, Any]], scope: str) -> list[str]:
        return await self._secrets.check(entries, scope)

    async def resolve(self, entry: Mapping[str, Any], scope: str) -> Credential:
        return await self._secrets.resolve(entry, scope)

    async def refused(self, entry: Mapping[str, Any], scope: str) -> None:
        await self._secrets.refused(entry, scope)

    async def close(self) -> None:
        if "_secrets" in vars(self):
            await self._secrets.close()
