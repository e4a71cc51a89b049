"""How many denials of one caller are kept one by one. In memory, and bounded."""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace

from arclog.ports.clock import Clock
from arclog.ports.storage.access import AuditEntry
from arclog.server.auth.addresses import neighbourhood

_WINDOW_S = 60.0
#: So many callers are distinguished in a minute; the denials of all others count together.
_CALLERS = 100
_OTHERS = ("", "", "others")


class _Window:
    """A minute of one caller."""

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

    def kept(self, entry: AuditEntry) -> list[AuditEntry]:
        """What to write of a denial: itself while there are few; before the first one of a new minute, how many more there were."""
        now = self._clock.monotonic()
        who = (entry.tenant, entry.principal, "" if entry.principal else neighbourhood(entry.address))
        found = self._summed(now)
        window = self._windows.get(who)
        if window is None:
            if len(self._windows) >= _CALLERS:
                who = _OTHERS
            window = self._windows.setdefault(who, _Window(now))
        window.count += 1
        if window.count <= self._most:
            found.append(entry)
        else:
            window.last = entry
        return found

    def _summed(self, now: float) -> list[AuditEntry]:
        """Close the windows that are over; an entry for each that had more than were kept."""
        found = []
        while self._windows:
            who, window = next(iter(self._windows.items()))
            if now - window.since < _WINDOW_S:
                break
            del self._windows[who]
            if window.last is not None:
                more = window.count - self._most
                reason = f"{more} more within a minute, the last of them: {window.last.reason}"
                found.append(replace(window.last, reason=reason[:500]))
        return found
