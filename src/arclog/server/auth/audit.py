"""The record of what callers were granted and denied.

Every denial is kept, and every grant of a request that changes something, before it is carried out: what cannot be
recorded is not done. Of one who is denied again and again in a minute, `auth.max_denials` are kept one by one, the rest as one
entry with their number. The work of workers and producers is not repeated here; each report and event is in the log already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arclog.model.config.settings import Settings
from arclog.model.ids import MICROS
from arclog.model.principal import Principal
from arclog.ports.clock import Clock
from arclog.ports.storage.access import AccessBook, AuditEntry
from arclog.server.auth.denials import Denials

if TYPE_CHECKING:
    from arclog.server.call import Call

_LONGEST = 500
DENIED = "denied"


class Audit:
    """Writes the record."""

    def __init__(self, book: AccessBook, clock: Clock, settings: Settings) -> None:
        self._book = book
        self._clock = clock
        self._keep = round(settings.number("auth.audit_keep_s") * MICROS)
        self._denials = Denials(clock, settings.integer("auth.max_denials"))

    async def note(self, call: Call, principal: Principal | None, decision: str, reason: str = "") -> None:
        now = self._clock.now()
        entry = AuditEntry(
            at=now,
            decision=decision,
            principal="" if principal is None else principal.name,
            tenant="" if principal is None else principal.tenant,
            method=call.method,
            route=call.operation.path[:_LONGEST],
            target=" ".join(f"{key}={value}" for key, value in call.path_values.items())[:_LONGEST],
            address=call.address,
            reason=reason[:_LONGEST],
        )
        entries = [entry] if decision != DENIED else self._denials.kept(entry)
        if entries:
            await self._book.add_audit(entries, keep_from=now - self._keep)
