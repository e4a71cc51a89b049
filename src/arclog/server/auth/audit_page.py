"""The audit as it is told, by a route or by the command line."""

from __future__ import annotations

from arclog.model.ids import timestamp
from arclog.ports.storage.access import AccessBook, Audited


async def page(book: AccessBook, tenant: str, decision: str, before: int, limit: int) -> list[Audited]:
    """Newest first."""
    found = await book.audit(tenant=tenant, decision=decision, before=before, limit=limit)
    return [
        Audited(
            position=position,
            at=timestamp(entry.at),
            decision=entry.decision,
            principal=entry.principal,
            tenant=entry.tenant,
            method=entry.method,
            route=entry.route,
            target=entry.target,
            address=entry.address,
            reason=entry.reason,
        )
        for position, entry in found
    ]


class AuditBook:
    """Implements `ports.access.AuditApi` for one tenant; '' = all, and nobody's."""

    def __init__(self, book: AccessBook, tenant: str = "") -> None:
        self._book = book
        self._tenant = tenant

    async def page(self, *, decision: str = "", before: int = 0, limit: int = 100) -> list[Audited]:
        return await page(self._book, self._tenant, decision, before, limit)
