"""API keys in the store, within a boundary: what the routes and, on the machine itself, the command line work with."""

from __future__ import annotations

import asyncio
import builtins

from arclog.model.errors import NotAllowed, NotFound
from arclog.model.ids import MICROS
from arclog.ports.boundary import Boundary
from arclog.ports.clock import Clock
from arclog.ports.storage.access import AccessBook, KeyMade, KeyRecord, KeyShown, NewKey
from arclog.ports.storage.store import Scope
from arclog.server.auth.keys import make_key, shown

#: Ten years: longer is forever.
_LONGEST_S = 10 * 366 * 86_400


class KeyBook:
    """Implements `ports.access.KeyApi`."""

    def __init__(self, book: AccessBook, clock: Clock, boundary: Boundary) -> None:
        """Whoever is bound to a project or an environment makes and sees keys that are bound to the same."""
        self._book = book
        self._clock = clock
        self._boundary = boundary

    async def create(self, new: NewKey) -> KeyMade:
        now = self._clock.now()
        tenant, reach = self._boundary.home.tenant, self._boundary.reach
        project, environment = new.project or reach.project, new.environment or reach.environment
        if not self._boundary.sees(Scope(tenant, project, environment)):
            raise NotAllowed(f"callers bound to {self._boundary.binding} can only create keys with the same binding")
        span = None if new.expires_in_s is None else min(new.expires_in_s, _LONGEST_S)
        text, record = await asyncio.to_thread(
            make_key,
            new.name,
            new.roles,
            tenant,
            now,
            project=project,
            environment=environment,
            expires_at=None if span is None else now + span * MICROS,
        )
        first = not await self._book.has_keys()
        await self._book.add_key(record)
        return KeyMade(text, shown(record), first)

    async def list(self) -> builtins.list[KeyShown]:
        found = await self._book.keys(self._boundary.reach.tenant)
        return [shown(record) for record in found if self._boundary.sees(_scope_of(record))]

    async def revoke(self, key_id: str) -> KeyShown:
        found = await self._book.key(key_id)
        if found is None or not self._boundary.sees(_scope_of(found)):
            raise NotFound(f"there is no key {key_id[:64]}; `arclog key list` and GET /api/keys list all keys")
        return shown(await self._book.revoke_key(key_id, self._clock.now()) or found)


def _scope_of(key: KeyRecord) -> Scope:
    return Scope(key.tenant, key.project, key.environment)
