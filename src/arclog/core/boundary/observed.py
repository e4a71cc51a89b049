"""Events from outside, recorded for readers of the log.

Law: they have no effect. The run neither starts, ends nor continues because of them, and no limit of the playbook
counts them: they have one of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arclog.core.boundary.inputs import Observed, Refused

if TYPE_CHECKING:
    from arclog.core.transitions.decide import Decision


def record(decision: Decision, given: Observed) -> None:
    """Write them down, or refuse them all; also of a run that has ended: a late result is a fact, too."""
    room = given.most - decision.state.informative
    if len(given.events) > room:
        decision.txn.refused = Refused(
            "full", f"the run has {decision.state.informative} events from outside; it takes {given.most}"
        )
        return
    for event in given.events:
        event.informative = True
        decision.emit(event)
    decision.txn.digests.update(given.digests)
