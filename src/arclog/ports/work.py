"""The bodies of `ports.control`, `ports.results` and `ports.secrets` over HTTP, between the server and a remote worker.

Where a struct of these ports (WorkerInfo, Report, ReportAnswer, LoopPage, Content, StoredBlob) is sufficient, it is the
body.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from msgspec import Struct

from arclog.model.commands import Command, Revocation, WireCommand
from arclog.ports.control import Held, WorkerInfo
from arclog.ports.secrets import SealedSecret
from arclog.ports.storage.task_logs import LogLine

#: Protocol version. Incremented when older workers or servers become incompatible.
PROTOCOL = 1
#: Maximum number of commands of one claim.
MOST_COMMANDS = 1000
#: The path prefix of these operations.
ROOT = "/api/worker"
#: The pattern of worker ids.
WORKER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class RegisterWorkerBody(Struct, frozen=True):
    """A worker introduces itself."""

    worker: WorkerInfo
    protocol: int = PROTOCOL


class WorkerSettings(Struct, frozen=True):
    """The settings of the server that a worker needs."""

    #: duration of the lease of a claimed command
    lease_s: float
    #: name of the result store in refs
    results: str
    #: maximum size of a single result
    results_max_bytes: int
    protocol: int = PROTOCOL
    #: whether the worker gets commands of all tenants (setting `workers.shared`)
    shared: bool = False


class ClaimBody(Struct, frozen=True, omit_defaults=True):
    worker: WorkerInfo
    limit: int
    wait_s: float = 0.0
    #: counts the worker's claims; a repeated n gets the first answer again
    n: int = 0
    #: 'wire': commands for workers that report with POST /api/events
    form: Literal["", "wire"] = ""


class Claimed(Struct, frozen=True, omit_defaults=True):
    commands: list[Command] = []


class WireClaimed(Struct, frozen=True):
    """The answer to a claim in the form `wire`."""

    commands: list[WireCommand]
    #: duration of their lease without a report or a heartbeat
    lease_s: float


class HeartbeatBody(Struct, frozen=True):
    worker_id: str
    held: list[tuple[int, int]]


class Lost(Struct, frozen=True):
    """Ids of commands that the worker no longer holds."""

    commands: list[int]


class GiveBackBody(Struct, frozen=True):
    worker_id: str
    execution_id: int
    command_id: int
    fence: int


class RevokedBody(Struct, frozen=True, omit_defaults=True):
    worker_id: str
    wait_s: float = 0.0
    #: counts the worker's calls; a repeated n gets the first answer again
    n: int = 0
    #: the commands that the worker holds; another server may have issued them
    held: list[Held] = []


class Revoked(Struct, frozen=True, omit_defaults=True):
    revoked: list[Revocation] = []


class LoopResultsBody(Struct, frozen=True):
    execution_id: int
    step: str
    run: int
    after: int
    limit: int


class Lines(Struct, frozen=True):
    lines: list[LogLine]


class SecretBody(Struct, frozen=True):
    name: str
    #: scope of the run that needs it: tenant/project/environment
    scope: str


class SecretAnswer(Struct, frozen=True):
    """A sealed secret; None if there is none."""

    secret: SealedSecret | None = None


class Done(Struct, frozen=True):
    """The request was accepted."""


class Items(Struct, frozen=True, omit_defaults=True):
    """Some items of a stored list, from the first requested one."""

    items: list[Any]
    #: whether there are more of the requested items
    more: bool = False


class Removed(Struct, frozen=True):
    removed: int
