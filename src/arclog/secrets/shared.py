"""The secrets of servers that share a store: kept there, sealed with a key that each of them is given.

A server whose key is missing, or another one than the rest has, neither opens nor replaces anything: it says so.
"""

from __future__ import annotations

import asyncio
import logging

from arclog.model.config.settings import Settings
from arclog.model.errors import Conflict, SecretUnavailable
from arclog.ports.secrets import SealedSecret, SecretBook, SecretInfo
from arclog.secrets.naming import described, not_kept, widening
from arclog.secrets.seal import Seal

log = logging.getLogger("arclog.secrets")


class SharedVault:
    """Implements `ports.secrets.Vault`. Nothing is cached but the key, as long as its file is the same."""

    #: where exactly is for nobody who reads the log of a run
    place = "the store"

    def __init__(self, book: SecretBook, seal: Seal, settings: Settings) -> None:
        self._book = book
        self._seal = seal
        self._most = settings.integer("secrets.max_bytes")

    async def put(self, name: str, scope: str, value: str, at: str) -> SecretInfo:
        info = described(name, scope, value, at, self._most)
        key = await asyncio.to_thread(self._seal.key)
        if key is None:
            # What is kept already has a key: one that is made here would open none of it.
            await self._require_key()
            key = await asyncio.to_thread(self._seal.made)
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
