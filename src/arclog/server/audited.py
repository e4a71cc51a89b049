"""The audit as it is told, by a route or by the command line."""

from __future__ import annotations

from msgspec import Struct

from arclog.model.ids import timestamp
from arclog.ports.access import AccessBook


class Audited(Struct, frozen=True):
    """One decision, as it is told."""

    position: int
    at: str
    #: granted | denied
    decision: str
    principal: str
    tenant: str
    method: str
    route: str
    target: str
    address: str
    reason: str


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
