"""What must hold after whatever was done to a cluster: every run ended well, its log is whole, and the log is the ledger.

The ledger is a file outside of arclog. Each task of the playbooks here writes its idempotency key to it, puts it to the
disk, and gives it as its result. So what the log calls done must stand in the ledger, what stands there must be in the log
once, and whatever stands there more often was done again because a worker or a server was lost on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arclog.model.events import TERMINAL


@dataclass
class Verdict:
    """What was found in the logs of some runs, and in the ledger."""

    runs: int = 0
    tasks: int = 0
    #: leases that were lost on the way
    leases_lost: int = 0
    #: times that a task was done again
    repeated: int = 0
    problems: list[str] = field(default_factory=list)
    #: keys that the logs have
    _known: set[str] = field(default_factory=set)

    def look_at(self, execution_id: str, events: Sequence[dict[str, Any]], ledger: Counter[str]) -> None:
        """Compare the whole log of a run with the ledger."""

        def problem(what: str) -> None:
            self.problems.append(f"run {execution_id}: {what}")

        self.runs += 1
        if [event["seq"] for event in events] != list(range(1, len(events) + 1)):
            problem("its seq has gaps")
        if len({event["event_id"] for event in events}) < len(events):
            problem("an event id stands in its log twice")
        facts = [event for event in events if not event.get("informative")]
        ends = [event["event_type"] for event in facts if event["event_type"] in TERMINAL]
        if ends != ["playbook.finished"] or not _completed(facts):
            problem(f"it did not end well, and once: {ends}")
        # A wait is a task, too, and writes nothing.
        results = [event["payload"]["outcome"]["data"] for event in facts if event["event_type"] == "task.done"]
        done = Counter(data["stdout"] for data in results if "stdout" in data)
        for key, count in done.items():
            if count > 1:
                problem(f"{key} has {count} results")
            if not ledger[key]:
                problem(f"{key} is done in the log, and nobody did it")
        self._known.update(done)
        self.tasks += len(done)
        self.leases_lost += sum(
            event["event_type"] == "command.issued" and event["payload"].get("reason") == "lease_lost"
            for event in facts
        )

    def close(self, ledger: Counter[str]) -> None:
        """Once all runs were looked at: nothing was done that no log knows of."""
        self.problems += [f"{key} was done, and no log has it" for key in sorted(ledger.keys() - self._known)]
        self.repeated = sum(ledger.values()) - len(ledger)


def keys_of(ledger: Path) -> Counter[str]:
    """How often each task was done."""
    return Counter(ledger.read_text().split())


def _completed(facts: Sequence[dict[str, Any]]) -> bool:
    return any(event["event_type"] == "playbook.finished" and event["status"] == "success" for event in facts)
