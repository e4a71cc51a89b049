"""The audit within a boundary, for the server and for the command line."""

from __future__ import annotations

from arclog.model.ids import timestamp
from arclog.ports.boundary import Boundary
from arclog.ports.storage.access import AccessBook, Audited


class AuditBook:
    """Implements `ports.access.AuditApi`. Whoever sees all tenants also sees the entries of callers that nobody knows."""

    def __init__(self, book: AccessBook, boundary: Boundary) -> None:
        self._book = book
        self._tenant = boundary.reach.tenant

    async def page(self, *, decision: str = "", before: int = 0, limit: int = 100) -> list[Audited]:
        found = await self._book.audit(tenant=self._tenant, decision=decision, before=before, limit=limit)
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
