"""A standalone worker: it claims commands from a server, and runs them with its own tools and secrets.

`env` and `file` entries of a keychain are resolved here; `secret` entries in this worker's home, then at the server,
which sends them sealed. This machine's key opens them.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from arclog import __version__
from arclog.client.connection import Connection
from arclog.client.control import RemoteControl, ServerSecrets
from arclog.client.results import RemoteResults
from arclog.client.transport import Transport
from arclog.model.config.settings import Settings
from arclog.ports.control import WorkerInfo
from arclog.ports.tool import ToolServices
from arclog.sandbox.confinement_settings import for_server
from arclog.sandbox.folders import workdir_of
from arclog.wiring.clocks import SystemClock
from arclog.wiring.file_root import prepare_file_root
from arclog.wiring.homes.folders import Scratch
from arclog.wiring.isolation import isolate
from arclog.wiring.kinds import tool_kinds
from arclog.wiring.process import protect_process
from arclog.wiring.secrets import SecretsOnDemand, choose_vault
from arclog.worker.runner import Worker
from arclog.worker.toolbox import Toolbox


@asynccontextmanager
async def remote_worker(settings: Settings, url: str, token: str, pools: Sequence[str]) -> AsyncIterator[Worker]:
    """A worker that is registered at the server; waits for a server that cannot be reached yet. Call its `run`."""
    settings = for_server(settings)
    prepare_file_root(settings)
    workdir_of(settings)  # raises before anything runs if the folder does not exist
    clock = SystemClock()
    # The transport retries requests itself.
    connection = Connection(url, settings.replaced(client__patience_s=0.0), token=token)
    scratch = Scratch()
    transport = Transport(connection)
    secrets = SecretsOnDemand(settings, clock, lambda: (choose_vault(settings), ServerSecrets(transport)))
    try:
        control = RemoteControl(transport)
        protect_process(settings)
        toolbox = Toolbox(tool_kinds(), ToolServices(settings, scratch.folder))
        info = WorkerInfo(
            _worker_id(),
            toolbox.kinds,
            tuple(pools),
            slots=settings.integer("worker.slots"),
            host=socket.gethostname(),
            version=__version__,
            leaves=True,
        )
        welcome = await transport.until_answered(lambda: control.register(info))
        await isolate(settings, toolbox, several=welcome.shared)
        results = RemoteResults(transport, welcome.results, welcome.results_max_bytes)
        settings = settings.replaced(leases__seconds=welcome.lease_s)
        yield Worker(info, control, toolbox, results, clock, settings, secrets, unattended=True)
    finally:
        await secrets.close()
        await asyncio.shield(connection.close())
        scratch.remove()


def _worker_id() -> str:
    """The prefix `remote_` distinguishes it from workers on the server's machine, whose locks the server can check."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:64]
    return f"remote_{host}-{os.getpid()}-{os.urandom(3).hex()}"
