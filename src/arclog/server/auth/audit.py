"""The record of what callers were granted and denied.

Every denial is kept, and every grant of a request that changes something, before it is carried out: what cannot be
recorded is not done. Of one who is denied again and again in a minute, `auth.max_denials` are kept one by one, the rest as one
entry with their number. The work of workers and producers is not repeated here; each report and event is in the log already.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError, InvariantBroken, NotAllowed, NotHolder, Unauthenticated
from arclog.model.ids import MICROS
from arclog.model.principal import Principal
from arclog.ports.clock import Clock
from arclog.ports.storage.access import AccessBook, Audited, AuditEntry
from arclog.server.auth.audit_page import page
from arclog.server.auth.denials import Denials
from arclog.server.problems import answer_of

#: Methods that change nothing.
LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
_LONGEST = 500
#: Errors that are denials: they are kept, wherever they were decided.
DENIALS = (NotAllowed, NotHolder, Unauthenticated)
DENIED = "denied"


class Audit:
    """Writes and reads the record."""

    def __init__(self, book: AccessBook, clock: Clock, settings: Settings) -> None:
        self._book = book
        self._clock = clock
        self._keep = round(settings.number("auth.audit_keep_s") * MICROS)
        self._denials = Denials(clock, settings.integer("auth.max_denials"))

    async def note(self, request: Request, principal: Principal | None, decision: str, reason: str = "") -> None:
        now = self._clock.now()
        route: Any = request.scope.get("route")
        entry = AuditEntry(
            at=now,
            decision=decision,
            principal="" if principal is None else principal.name,
            tenant="" if principal is None else principal.tenant,
            method=request.method,
            route=getattr(route, "path", request.url.path)[:_LONGEST],
            target=" ".join(f"{key}={value}" for key, value in request.path_params.items())[:_LONGEST],
            address="" if request.client is None else request.client.host,
            reason=reason[:_LONGEST],
        )
        entries = [entry] if decision != DENIED else self._denials.kept(entry)
        if entries:
            await self._book.add_audit(entries, keep_from=now - self._keep)

    async def page(self, tenant: str, decision: str, before: int, limit: int) -> list[Audited]:
        return await page(self._book, tenant, decision, before, limit)


def install(app: FastAPI, audit: Audit) -> None:
    """Keep every denial, wherever it was decided: at the gate, at the route, or by the API itself."""

    async def denied(request: Request, error: Exception) -> Response:
        principal: Principal | None = getattr(request.state, "principal", None)
        try:
            await audit.note(request, principal, DENIED, str(error))
        except ArclogError as problem:
            return answer_of(problem)
        return answer_of(error) if isinstance(error, ArclogError) else answer_of(InvariantBroken(str(error)))

    for kind in DENIALS:
        app.add_exception_handler(kind, denied)
