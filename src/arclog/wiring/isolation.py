"""Isolation of tenants: decides whether the tasks of several tenants may run in one worker of this machine.

They may if confinement reaches its level `standard`, or if the operator allows it. Otherwise a worker that is known to
serve several tenants does not start, and any other worker runs the tasks of one tenant only.
"""

from __future__ import annotations

import logging

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.ports.storage.access import AccessBook
from arclog.sandbox.probe import Held, held
from arclog.wiring.homes.folders import Scratch
from arclog.worker.toolbox import Toolbox

log = logging.getLogger("arclog.worker")


async def has_several_tenants(settings: Settings, book: AccessBook) -> bool:
    """Return whether there may be callers of more than one tenant: by their keys, or because an issuer of tokens names
    tenants.
    """
    if settings.text("auth.jwt_issuer"):
        return True
    tenants = {key.tenant for key in await book.keys() if key.revoked_at is None}
    return len(tenants | {settings.text("scope.tenant")}) > 1


async def isolate(settings: Settings, toolbox: Toolbox, *, several: bool) -> None:
    """Restrict a worker to the tasks that its machine can isolate. Raises SettingsError if it must not serve several tenants.
    Until this returns, only tasks of one tenant run.
    """
    toolbox.serves_one_tenant = True
    scratch = Scratch()
    try:
        confinement = await held(settings, scratch.folder)
    finally:
        scratch.remove()
    if confinement.is_standard():
        toolbox.serves_one_tenant = False
        return
    why = _lacking(confinement)
    if settings["tasks.share_unconfined"]:
        log.warning("tasks of several tenants can run on this worker although %s (tasks.share_unconfined)", why)
        toolbox.serves_one_tenant = False
        return
    if several:
        raise SettingsError(
            f"this worker would run tasks of several tenants, and {why}; see `arclog doctor`, give each tenant a worker of "
            "its own, or set tasks.share_unconfined"
        )
    log.warning("tasks of one tenant only run here: %s; see `arclog doctor`", why)


def _lacking(confinement: Held) -> str:
    if confinement.problem:
        return f"they cannot be confined here ({confinement.problem})"
    if confinement.facts is None:
        return "they are not confined (tasks.confinement: off)"
    lacking = ", ".join(promise.name for promise in confinement.lacking() if promise.between_tenants)
    return f"this machine cannot keep them apart ({lacking})"
