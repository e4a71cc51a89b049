"""The record of granted and denied requests.

Every denial is recorded, and every granted request that changes something, before it is processed: a request that
cannot be recorded is not processed. Requests that arrive while others are being recorded are recorded together. If one
caller is denied repeatedly within a minute, `auth.max_denials` denials are recorded one by one and the rest as one entry
with their number. A tenant has at most `auth.audit_max_entries` entries, and one caller half of them, so that no caller
can fill the store or displace the entries of others. Requests of workers and producers are not recorded here, since each
report and event is in the log.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from arclog.drivers.addresses import neighbourhood
from arclog.model.config.settings import Settings
from arclog.model.data.lru import LruCache
from arclog.model.errors import StoreError
from arclog.model.ids import MICROS, timestamp
from arclog.model.principal import Principal
from arclog.ports.boundary import Boundary
from arclog.ports.clock import Clock
from arclog.ports.storage.access import AccessBook, AuditedRequest, AuditEntry

if TYPE_CHECKING:
    from arclog.server.call import Call

# ── denials ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Limits how many denials of one caller are recorded one by one. Kept in memory, and bounded.


_WINDOW_S = 60.0
#: Maximum number of callers that are distinguished within a minute; the denials of all others are counted together.
_CALLERS = 100
_OTHERS = ("", "", "others")


class _Window:
    """The denials of one caller within a minute."""

    __slots__ = ("count", "last", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.last: AuditEntry | None = None


class Denials:
    """Counts by caller, in windows of a minute from the first denial."""

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock = clock
        self._most = most
        self._windows: OrderedDict[tuple[str, str, str], _Window] = OrderedDict()

    def to_record(self, entry: AuditEntry) -> list[AuditEntry]:
        """Return the entries to write for a denial: the denial itself while there are few; before the first one of a
        new minute, a summary of those that were left out.
        """
        now = self._clock.monotonic()
        caller = (entry.tenant, entry.principal, "" if entry.principal else neighbourhood(entry.address))
        entries = self._summed(now)
        window = self._windows.get(caller)
        if window is None:
            if len(self._windows) >= _CALLERS:
                caller = _OTHERS
            window = self._windows.setdefault(caller, _Window(now))
        window.count += 1
        if window.count <= self._most:
            entries.append(entry)
        else:
            window.last = entry
        return entries

    def _summed(self, now: float) -> list[AuditEntry]:
        """Close the windows that are over; return a summary for each that had more denials than were recorded."""
        entries = []
        while self._windows:
            caller, window = next(iter(self._windows.items()))
            if now - window.since < _WINDOW_S:
                break
            del self._windows[caller]
            if window.last is not None:
                more = window.count - self._most
                reason = f"{more} more within a minute, the last of them: {window.last.reason}"
                entries.append(replace(window.last, reason=reason[:500]))
        return entries


# ── entries ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Entries of requests that are processed at the same time share transactions.

#: maximum number of requests whose entries are written in one transaction
_AT_A_TIME = 500


class _Waiting(NamedTuple):
    """The entries of a request, and the future that ends when they are durable."""

    entries: list[AuditEntry]
    keep_from: int
    written: asyncio.Future[None]


class Entries:
    """Writes entries, one transaction at a time."""

    def __init__(self, book: AccessBook) -> None:
        self._book = book
        self._is_writing = False
        self._waiting: list[_Waiting] = []
        #: writes the entries that wait; a separate task, so that a cancelled request does not cancel those of others
        self._serving: asyncio.Task[None] | None = None

    async def add(self, entries: list[AuditEntry], keep_from: int) -> None:
        """Return after the entries are durable. Entries from before `keep_from` are removed."""
        if self._is_writing:
            written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(_Waiting(entries, keep_from, written))
            await written
            return
        self._is_writing = True
        try:
            await self._book.add_audit(entries, keep_from=keep_from)
        finally:
            if self._waiting:
                self._serving = asyncio.ensure_future(self._serve())
            else:
                self._is_writing = False

    async def _serve(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:_AT_A_TIME], self._waiting[_AT_A_TIME:]
            await self._write(group)
        self._is_writing = False

    async def _write(self, group: Sequence[_Waiting]) -> None:
        entries = [entry for waiting in group for entry in waiting.entries]
        problem: Exception | None = None
        try:
            await self._book.add_audit(entries, keep_from=max(waiting.keep_from for waiting in group))
        except StoreError as error:
            problem = error
        except Exception as error:  # noqa: BLE001 - it is raised where the entries are awaited
            if len(group) > 1:
                # The store refuses an entry and has written none: only the request of that entry may fail.
                for waiting in group:
                    await self._write([waiting])
                return
            problem = error
        for waiting in group:
            if waiting.written.done():
                continue  # the request was cancelled
            if problem is None:
                waiting.written.set_result(None)
            else:
                waiting.written.set_exception(type(problem)(*problem.args))  # each has its own exception object


# ── audit ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


_LONGEST = 500
DENIED = "denied"
#: Entries of one caller after which the entries of its tenant are counted, and callers whose entries are counted separately.
_TRIM_EVERY = 500
_COUNTED_CALLERS = 10_000


class Audit:
    """Writes the audit record."""

    def __init__(self, book: AccessBook, clock: Clock, settings: Settings) -> None:
        self._book = book
        self._entries = Entries(book)
        self._clock = clock
        self._keep = round(settings.number("auth.audit_keep_s") * MICROS)
        self._denials = Denials(clock, settings.integer("auth.max_denials"))
        self._most = settings.integer("auth.audit_max_entries")
        #: entries of each caller since its entries were trimmed
        self._added: LruCache[tuple[str, str], int] = LruCache(_COUNTED_CALLERS)

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
        entries = [entry] if decision != DENIED else self._denials.to_record(entry)
        if entries:
            await self._entries.add(entries, now - self._keep)
            await self._trim(entry.tenant, entry.principal)

    async def _trim(self, tenant: str, principal: str) -> None:
        """Remove the excess entries of a caller and its tenant, at intervals. A caller that is counted for the first
        time may have written before this process started.
        """
        caller = (tenant, principal)
        added = self._added.get(caller)
        if added is None or added >= min(_TRIM_EVERY, self._most // 2):
            await self._book.trim_audit(tenant, principal, self._most // 2, self._most)
            added = 0
        self._added.replace(caller, added + 1)


# ── audit page ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Reading the audit within a boundary, for the server and for the command line.


class AuditBook:
    """Implements `ports.storage.access.AuditApi`. A reader of all tenants also sees the entries of unknown callers."""

    def __init__(self, book: AccessBook, boundary: Boundary) -> None:
        self._book = book
        self._tenant = boundary.reach.tenant

    async def page(self, *, decision: str = "", before: int = 0, limit: int = 100) -> list[AuditedRequest]:
        rows = await self._book.audit(tenant=self._tenant, decision=decision, before=before, limit=limit)
        return [
            AuditedRequest(
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
            for position, entry in rows
        ]
