"""Records of servers (shared counts of crashes) and of access (sealed credentials), as far as PostgreSQL differs from
`stores.sql.administration`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from arclog.model.errors import Conflict
from arclog.ports.secrets import SealedSecret, SecretInfo
from arclog.ports.storage.marks import ATTEMPT, Crash
from arclog.stores.postgres.connection.pipeline import texts
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.sql.administration import Access as SqlAccess
from arclog.stores.sql.administration import Duties as SqlDuties
from arclog.stores.sql.part import Call

# ── duties ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Crashes, which all servers of a PostgreSQL store count together.


class Duties(SqlDuties, PostgresPart):
    # -- crashes: see `ports.storage.marks.CrashBook` ---------------------------------------------------------------

    async def add_crashes(self, work: Sequence[tuple[int, int]], at: int, since: int) -> list[Crash]:
        return await self._recorded([("forget_crashes", (since,)), *(("add_crash", (*crash, at)) for crash in work)])

    async def begin_attempt(self, execution_id: int, attempt: int, owner: str, at: int) -> list[Crash]:
        return await self._recorded([("record_attempt", (execution_id, attempt, at, owner))])

    async def renew_attempts(self, attempts: Sequence[tuple[int, int]], owner: str, at: int, since: int) -> list[Crash]:
        calls: list[Call] = [("forget_crashes", (since,))]
        for attempt in attempts:
            calls += [("record_attempt", (*attempt, at, owner)), self._withdrawal(*attempt)]
        return await self._recorded(calls)

    async def end_attempt(self, execution_id: int, attempt: int, owner: str, *, withdraw: bool) -> None:
        calls: list[Call] = [("end_attempt", (execution_id, attempt, owner))]
        await self._run([*calls, self._withdrawal(execution_id, attempt)] if withdraw else calls)

    async def count_attempt(self, execution_id: int, attempt: int, seen: int, at: int, least: int) -> None:
        await self._write("count_attempt", execution_id, attempt, attempt & ~ATTEMPT, seen, at, least)

    async def excuse_attempt(self, execution_id: int, attempt: int, at: int) -> None:
        work = attempt & ~ATTEMPT
        # Withdrawn first: the crash that replaces a record is not a presumed one.
        withdraw = ("excuse_crash", (execution_id, work, 0, 1, ATTEMPT))
        await self._run([withdraw, ("excuse_attempt", (execution_id, attempt, work, at))])

    async def vouch(self, owners: Sequence[str], died_of: Sequence[tuple[int, int]], at: int) -> None:
        calls: list[Call] = [("add_crash", (*crash, at)) for crash in died_of]
        calls += [("vouch", (owner,)) for owner in owners]
        await self._run([*calls, ("excuse_vouched", (ATTEMPT,))], again=not died_of)

    async def pause_crash(self, crash: Crash, at_head: int, least: int) -> bool:
        values = (crash.execution_id, crash.work, at_head, crash.paused_at, least)
        return bool(await self._write("pause_crash", *values))

    async def resume_crash(self, crash: Crash) -> None:
        values = (crash.execution_id, crash.work, crash.paused_at)
        await self._run([("resume_crash", values), ("forget_excused", values[:2])])

    async def forget_crash(self, execution_id: int, work: int = 0) -> None:
        await self._write("forget_crash", execution_id, work, ATTEMPT)

    @staticmethod
    def _withdrawal(execution_id: int, attempt: int) -> Call:
        """Return the statement that withdraws a crash of work whose server is alive."""
        return "excuse_crash", (execution_id, attempt & ~ATTEMPT, 1, 0, ATTEMPT)

    async def _recorded(self, calls: Sequence[Call]) -> list[Crash]:
        """Run statements, and return all crashes and records."""
        *_, rows = await self._run([*calls, ("crashes", ())])
        return [Crash(*row) for row in rows]


# ── access ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Sealed credentials of playbooks: see `ports.secrets.SecretBook`.

_FIELDS = msgspec.json.Decoder(tuple[str, ...])


class Access(SqlAccess, PostgresPart):
    async def put_secret(self, secret: SealedSecret) -> None:
        info = secret.info
        about = (info.name, info.scope, msgspec.json.encode(info.fields).decode(), info.set_at)
        put = ("put_secret", (*about, secret.key, secret.nonce, secret.data))
        _, rows = await self._run([("lock_secrets", ()), put], again=True)
        if not rows:
            raise Conflict(f"the secrets of the store are sealed with another key than {secret.key}")

    async def secret(self, name: str, scopes: Sequence[str]) -> SealedSecret | None:
        rows = await self._read("secret", name, texts(scopes))
        return SealedSecret(_info(rows[0][:4]), *rows[0][4:]) if rows else None

    async def secrets(self) -> list[SecretInfo]:
        return [_info(row) for row in await self._read("secrets")]

    async def secrets_key(self) -> str:
        rows = await self._read("secrets_key")
        return str(rows[0][0]) if rows else ""

    async def remove_secret(self, name: str, scope: str) -> bool:
        return bool(await self._write("remove_secret", name, scope))


def _info(row: Sequence[Any]) -> SecretInfo:
    name, scope, fields, set_at = row
    return SecretInfo(name, scope, _FIELDS.decode(fields), set_at)
