"""Events of other releases: older ones are lifted to the shape that this release knows, newer ones are distinguished.

Law: a type's `version` in the registry rises when its payload comes to mean something else; whoever emits the event writes
that version into it. `LIFTS` has, for each version that was ever written, the way to the next. A log is never rewritten:
events are lifted when they are read. What no lift leads from, and what the registry does not know, is a newer release's:
nobody may fold a log that has it, since what follows from it is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arclog.model.events import REGISTRY, Event

#: A payload of the type in this version → the same in the next one.
LIFTS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}


def lifted(event: Event) -> Event:
    """The event in the shape that this release knows; one of a newer release stays as it is."""
    kind = REGISTRY.get(event.type)
    while kind is not None and event.version < kind.version:
        event.payload = LIFTS[event.type, event.version](event.payload)
        event.version += 1
    return event


def is_newer(event: Event) -> bool:
    """A newer release wrote it."""
    kind = REGISTRY.get(event.type)
    return kind is None or event.version > kind.version
