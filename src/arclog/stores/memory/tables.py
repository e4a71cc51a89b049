"""The tables of the memory store, and its open state."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct
from msgspec.structs import replace

from arclog.model.config.schedules import Schedule
from arclog.model.config.settings import Settings
from arclog.model.errors import StoreUnavailable
from arclog.ports.clock import Clock
from arclog.ports.secrets import SealedSecret
from arclog.ports.storage.access import AuditEntry, KeyRecord, SessionRecord
from arclog.ports.storage.catalog import PlanRecord
from arclog.ports.storage.outbox import Delivery
from arclog.ports.storage.pools import ResourceRecord, WorkerRecord
from arclog.ports.storage.statistics import RunCount
from arclog.ports.storage.store import CommandRecord, ExecutionRecord, Ingested, Mark, Scope, StepRunRecord
from arclog.ports.storage.stored_results import ResultRecord
from arclog.ports.storage.task_logs import LogLine
from arclog.stores.claim_choice import Service
from arclog.stores.rows import Codec, Row


class LogRow(Struct, frozen=True):
    position: int
    execution_id: int
    ts: int
    row: Row


class StepRun(Struct):
    record: StepRunRecord
    #: the last event that names it, once it has ended
    until: int | None = None


class Execution(Struct):
    record: ExecutionRecord
    #: the terminal event is stored
    over: bool = False
    rows: list[LogRow] = []
    steps: dict[tuple[str, int], StepRun] = {}
    commands: dict[int, CommandRecord] = {}
    timers: dict[str, tuple[int, bytes]] = {}
    ingested: dict[int, Ingested] = {}


class Duty(Struct, frozen=True):
    owner: str
    until: int = 0
    position: int = 0


class Tables:
    """The rows, and reads that several parts share."""

    def __init__(self, *, clock: Clock, settings: Settings | None = None) -> None:
        self._clock = clock
        self._codec = Codec(settings or Settings())
        #: the (project, environment) pairs in which a version (tenant, path, version) is valid; no entry means its
        #: whole tenant
        self._catalog_scopes: dict[tuple[str, str, int], set[tuple[str, str]]] = {}
        self._search_rows = (settings or Settings()).integer("events.search_rows")
        self._is_open = False
        self._log: list[LogRow] = []
        self._executions: dict[int, Execution] = {}
        self._keys: dict[tuple[Scope, str], int] = {}
        #: command id → execution id, and the report to which a command was granted
        self._owners: dict[int, int] = {}
        self._grants: dict[int, tuple[int, int, int]] = {}
        self._marks: list[Mark] = []
        #: by scope and hour
        self._counts: dict[tuple[Scope, int], RunCount] = {}
        #: by digest, tenant and path
        self._plans: dict[tuple[str, str, str], PlanRecord] = {}
        #: archived paths (tenant, path), with the time
        self._archived: dict[tuple[str, str], int] = {}
        self._snapshots: dict[int, tuple[int, str, bytes]] = {}
        #: by seq
        self._past_snapshots: dict[int, dict[int, tuple[str, bytes]]] = {}
        #: lines of task logs, with their positions
        self._lines: list[tuple[int, LogLine]] = []
        self._line_position = 0
        #: size of an execution's task log in bytes, and whether it was truncated
        self._log_sizes: dict[int, tuple[int, bool]] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        self._results: dict[tuple[int, str, str], ResultRecord] = {}
        self._callers: dict[str, KeyRecord] = {}
        self._sessions: dict[str, SessionRecord] = {}
        self._audit: list[tuple[int, AuditEntry]] = []
        self._audited = 0
        self._schedules: dict[tuple[str, str], Schedule] = {}
        #: owner, until
        self._schedule_leases: dict[tuple[str, str], tuple[str, int]] = {}
        self._outbox: dict[tuple[int, int], Delivery] = {}
        self._outbox_leases: dict[tuple[int, int], int] = {}
        self._settled: set[int] = set()
        self._duties: dict[str, Duty] = {}
        #: by pool and tenant
        self._limits: dict[tuple[str, str], int] = {}
        #: without the tokens in use
        self._resources: dict[str, ResourceRecord] = {}
        self._service = Service()
        self._seen: dict[str, WorkerRecord] = {}
        #: by name and scope
        self._sealed: dict[tuple[str, str], SealedSecret] = {}

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreUnavailable("the memory store is not open: call open() first, and nothing after close()")

    def _all_commands(self) -> list[CommandRecord]:
        return [self._executions[owner].commands[command_id] for command_id, owner in sorted(self._owners.items())]

    def _tenant_of(self, command: CommandRecord) -> str:
        return self._executions[command.execution_id].record.new.scope.tenant

    def _held_resources(self) -> dict[str, ResourceRecord]:
        held = Counter(
            name for command in self._all_commands() if command.state == "claimed" for name in command.resources
        )
        return {name: replace(record, held=held[name]) for name, record in sorted(self._resources.items())}
