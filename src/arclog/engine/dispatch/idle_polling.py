"""When a worker that waits for commands looks into the store by itself.

Law: an offered command wakes a claim that waits, so a look without an offer only makes up for a lost notice. One look in
`engine.idle_look_s` is enough for each worker, however many requests its wait is made of.
"""

from __future__ import annotations

from typing import NamedTuple

from arclog.engine.commits.engine import Engine
from arclog.model.data.kept import Kept
from arclog.ports.control import WorkerInfo

_WORKERS_KNOWN = 10_000
#: How much more often it looks while notices of other servers are known not to arrive.
_WITHOUT_BUS = 3
#: When to look again after a look that found commands of which none could be given out.
_SOON_S = 1.0


class _Looked(NamedTuple):
    """A look that found nothing, or has not ended yet."""

    worker: WorkerInfo
    #: by the monotonic clock
    at: float
    #: how often commands had been offered before it
    offers: int


class IdleLooks:
    """The last look of each worker that found nothing."""

    def __init__(self, engine: Engine) -> None:
        self._clock = engine.clock
        self._hints = engine.hints
        self._every_s = engine.settings.number("engine.idle_look_s")
        self._looked: Kept[str, _Looked] = Kept(_WORKERS_KNOWN)

    def looks(self, worker: WorkerInfo) -> None:
        """A worker is about to look."""
        self._looked.replace(worker.worker_id, _Looked(worker, self._clock.monotonic(), self._hints.offers))

    def claimed(self, worker: WorkerInfo, *, given: bool) -> None:
        """Its look found commands. If none of them was given out, others may wait behind them."""
        if given:
            self.forget(worker.worker_id)
        else:
            soon = self._clock.monotonic() - self._every_s + min(_SOON_S, self._every_s)
            self._looked.replace(worker.worker_id, _Looked(worker, soon, self._hints.offers))

    def forget(self, worker_id: str) -> None:
        """It has commands: when it comes back, it looks first."""
        self._looked.pop(worker_id)

    def is_outdated(self, worker: WorkerInfo) -> bool:
        """Whether something was offered since the worker's last look, or it is another worker than it was."""
        last = self._looked.get(worker.worker_id)
        return last is None or last.worker != worker or last.offers != self._hints.offers

    def due_in(self, worker: WorkerInfo) -> float:
        """Seconds until the worker has to look again if it hears nothing."""
        last = self._looked.get(worker.worker_id)
        if last is None:
            return 0.0
        every_s = self._every_s / _WITHOUT_BUS if self._hints.is_away else self._every_s
        return max(last.at + every_s - self._clock.monotonic(), 0.0)
