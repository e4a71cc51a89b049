"""Who may say what on the wire, as data: one grant for each principal and type that it may send.

Law: what stands in no grant is refused. A producer may send every type there is, since its events are facts for readers
and nothing more.
"""

from __future__ import annotations

from msgspec import Struct

from arclog.model.errors import NotAllowed
from arclog.model.events import REGISTRY

SERVER = "server"
WORKER = "worker"
PRODUCER = "producer"


class Grant(Struct, frozen=True):
    """How an allowed event is taken."""

    #: only for a command that the sender holds, with its fence
    needs_lease: bool = False
    #: stored, never applied
    informative: bool = False


_HOW = {SERVER: Grant(), WORKER: Grant(needs_lease=True), PRODUCER: Grant(informative=True)}

#: principal → canonical type → how it is taken
GRANTS: dict[str, dict[str, Grant]] = {
    principal: {name: how for name, row in REGISTRY.items() if principal == PRODUCER or principal in row.emitters}
    for principal, how in _HOW.items()
}


def granted(principal: str, event_type: str, *, legacy_name: str = "") -> Grant:
    """How an event of this canonical type is taken from this principal. Raises NotAllowed."""
    grants = GRANTS.get(principal)
    if grants is None:
        raise NotAllowed(f"{principal!r} may not send events; {', '.join(GRANTS)} may")
    if legacy_name and principal != PRODUCER:
        raise NotAllowed(
            f"{legacy_name} is a name of older executors; a {principal} of this version sends {event_type} instead"
        )
    if event_type in grants:
        return grants[event_type]
    who = ", ".join(name for name in _HOW if event_type in GRANTS[name])
    raise NotAllowed(f"a {principal} may not send {event_type}; that is for: {who}")
