"""API keys of one tenant, or of all, in the store: what the routes and, on the machine itself, the command line work with."""

from __future__ import annotations

import asyncio
import builtins

from arclog.model.errors import NotAllowed, NotFound
from arclog.model.ids import MICROS
from arclog.model.principal import binding
from arclog.ports.clock import Clock
from arclog.ports.storage.access import AccessBook, KeyMade, KeyShown, NewKey
from arclog.server.auth.keys import make_key, shown

#: Ten years: longer is forever.
_LONGEST_S = 10 * 366 * 86_400


class KeyBook:
    """Implements `ports.access.KeyApi`."""

    def __init__(
        self,
        book: AccessBook,
        clock: Clock,
        tenant: str,
        *,
        project: str = "",
        environment: str = "",
        sees_all: bool = False,
    ) -> None:
        """`tenant` is where new keys go; keys of others are not there unless it `sees_all`. Whoever is bound to a project
        or an environment makes and sees keys that are bound to the same.
        """
        self._book = book
        self._clock = clock
        self._tenant = tenant
        self._project = project
        self._environment = environment
        self._sees_all = sees_all

    async def create(self, new: NewKey) -> KeyMade:
        now = self._clock.now()
        project, environment = new.project or self._project, new.environment or self._environment
        if not self._is_within(project, environment):
            bound = binding(self._project, self._environment)
            raise NotAllowed(f"callers bound to {bound} can only create keys with the same binding")
        span = None if new.expires_in_s is None else min(new.expires_in_s, _LONGEST_S)
        text, record = await asyncio.to_thread(
            make_key,
            new.name,
            new.roles,
            self._tenant,
            now,
            project=project,
            environment=environment,
            expires_at=None if span is None else now + span * MICROS,
        )
        first = not await self._book.has_keys()
        await self._book.add_key(record)
        return KeyMade(text, shown(record), first)

    async def list(self) -> builtins.list[KeyShown]:
        found = await self._book.keys("" if self._sees_all else self._tenant)
        return [shown(record) for record in found if self._is_within(record.project, record.environment)]

    async def revoke(self, key_id: str) -> KeyShown:
        found = await self._book.key(key_id)
        is_ours = found is not None and (self._sees_all or found.tenant == self._tenant)
        if found is None or not is_ours or not self._is_within(found.project, found.environment):
            raise NotFound(f"there is no key {key_id[:64]}; `arclog key list` and GET /api/keys list all keys")
        return shown(await self._book.revoke_key(key_id, self._clock.now()) or found)

    def _is_within(self, project: str, environment: str) -> bool:
        return self._project in ("", project) and self._environment in ("", environment)
