"""Work: commands and timers, and the pools, limits, resources and workers that claims depend on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from arclog.ports.storage.pools import Contest, Limit, QueueHead, Resource, ResourceRecord, Share, WorkerRecord
from arclog.ports.storage.store import Append, Backlog, CommandRecord, NewCommand, Scope, Timer
from arclog.stores.claim_choice import Lane, Room, Waiting, carried_over, chosen
from arclog.stores.memory.tables import Execution, Tables
from arclog.stores.rows import Derived, decode

_PAYLOAD = msgspec.json.Decoder(dict[str, Any])
_NO_GRANT = (0, 0, 0)


class Work(Tables):
    def _change_work(self, execution: Execution, append: Append, derived: Derived) -> None:
        """Apply the changes of an append to commands and timers."""
        for command_id, fence, lease_until in append.extend:
            held = execution.commands.get(command_id)
            if held is not None and held.fence == fence and held.state == "claimed":
                execution.commands[command_id] = replace(held, lease_until=lease_until)
        for command_id in append.close if not derived.terminal else tuple(execution.commands):
            if execution.commands.pop(command_id, None) is not None:
                self._owners.pop(command_id, None)
                self._grants.pop(command_id, None)
        for command_id in append.release:
            lost = execution.commands.get(command_id)
            if lost is not None:
                execution.commands[command_id] = replace(lost, state="issued", worker_id="", lease_until=0)
                self._grants.pop(command_id, None)
        for command_id, _ in () if derived.terminal else append.hold:
            execution.commands[command_id] = replace(
                execution.commands[command_id], state="held", worker_id="", lease_until=0
            )
            self._grants.pop(command_id, None)
        for command_id in append.unhold:
            waiting = execution.commands.get(command_id)
            if waiting is not None and waiting.state == "held":
                execution.commands[command_id] = replace(waiting, state="issued")
        for timer_id in append.clear_timers if not derived.terminal else tuple(execution.timers):
            execution.timers.pop(timer_id, None)
        if derived.terminal:
            return
        for command in append.issue:
            execution.commands[command.command_id] = _issued(append.execution_id, command)
            self._owners[command.command_id] = append.execution_id
            if command.grant is not None:
                self._grants[command.command_id] = command.grant.by
        for timer, payload in derived.timers:
            execution.timers[timer.timer_id] = (timer.due, payload)

    async def backlog(self) -> list[Backlog]:
        self._check_open()
        commands = [command for execution in self._executions.values() for command in execution.commands.values()]
        backlog: list[Backlog] = []
        for pool in sorted({command.pool for command in commands}):
            issued = [command.command_id for command in commands if command.pool == pool and command.state == "issued"]
            ends = [command.lease_until for command in commands if command.pool == pool and command.state == "claimed"]
            if issued or ends:
                backlog.append(Backlog(pool, len(issued), min(issued, default=0), len(ends), min(ends, default=0)))
        return backlog

    async def claim(
        self,
        worker_id: str,
        *,
        limit: int,
        lease_until: int,
        kinds: Sequence[str],
        pools: Sequence[str] = ("default",),
        execution_id: int = 0,
        tenant: str = "",
        project: str = "",
        environment: str = "",
    ) -> list[CommandRecord]:
        self._check_open()
        worker_kinds = frozenset(kinds)
        family = self._family(execution_id)
        within = Scope(tenant, project, environment)
        eligible = [
            command
            for command in self._all_commands()
            if command.state == "issued"
            and (not pools or command.pool in pools)
            and worker_kinds.issuperset(command.kinds)
            and (not execution_id or command.execution_id in family)
            and within.covers(self._executions[command.execution_id].record.new.scope)
        ]
        taken = [
            replace(command, state="claimed", fence=command.fence + 1, worker_id=worker_id, lease_until=lease_until)
            for command in self._chosen(eligible, limit)
        ]
        for command in taken:
            self._executions[command.execution_id].commands[command.command_id] = command
            self._grants.pop(command.command_id, None)
        return taken

    def _chosen(self, eligible: Sequence[CommandRecord], limit: int) -> list[CommandRecord]:
        """Choose from the commands that could be claimed."""
        waiting: dict[tuple[str, str, tuple[str, ...]], list[Waiting]] = {}
        for command in eligible:
            lane = (command.pool, self._tenant_of(command), command.resources)
            waiting.setdefault(lane, []).append(Waiting(command.order, command.command_id, command.execution_id))
        lanes = [Lane(*lane, iter(sorted(commands))) for lane, commands in waiting.items()]
        held = Counter(
            (command.pool, self._tenant_of(command)) for command in self._all_commands() if command.state == "claimed"
        )
        room = Room(self._clock.now(), self._limits, held, self._held_resources())
        shared = len({lane.tenant for lane in lanes}) > 1
        chosen_commands = chosen(lanes, limit, room, self._service if shared else None)
        for name in room.spent:
            self._resources[name] = replace(room.resources[name], held=0)
        return [self._executions[chosen.execution_id].commands[chosen.command_id] for chosen in chosen_commands]

    def _family(self, execution_id: int) -> set[int]:
        """Return an execution and all its descendants."""
        family = {execution_id}
        for child_id in sorted(self._executions) if execution_id else ():  # a child has a larger id than its parent
            if self._executions[child_id].record.new.parent_execution_id in family:
                family.add(child_id)
        return family

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]], lease_until: int) -> list[int]:
        self._check_open()
        lost = []
        for command_id, fence in held:
            owner = self._owners.get(command_id)
            command = None if owner is None else self._executions[owner].commands[command_id]
            if (
                command is None
                or command.state != "claimed"
                or (command.fence, command.worker_id) != (fence, worker_id)
            ):
                lost.append(command_id)
            else:
                self._executions[command.execution_id].commands[command_id] = replace(command, lease_until=lease_until)
        return lost

    async def expired(self, now: int, limit: int = 100) -> list[CommandRecord]:
        self._check_open()
        expired = [
            command for command in self._all_commands() if command.state == "claimed" and command.lease_until < now
        ]
        return sorted(expired, key=lambda command: (command.lease_until, command.command_id))[:limit]

    async def commands(self, execution_id: int) -> list[CommandRecord]:
        self._check_open()
        execution = self._executions.get(execution_id)
        return (
            []
            if execution is None
            else [command for _, command in sorted(execution.commands.items(), key=itemgetter(0))]
        )

    async def granted(self, by: tuple[int, int, int]) -> list[CommandRecord]:
        self._check_open()
        return [
            command
            for command in self._all_commands()
            if self._grants.get(command.command_id, _NO_GRANT) == by != _NO_GRANT
        ]

    async def due_timers(self, now: int, limit: int = 100, *, latest: bool = False) -> list[Timer]:
        self._check_open()
        due = sorted((timer for timer in self._all_timers() if timer[0] <= now), reverse=latest)
        return [Timer(owner, timer_id, at, decode(payload, _PAYLOAD)) for at, owner, timer_id, payload in due[:limit]]

    async def coming_timers(self, after: int, until: int, limit: int = 100) -> list[int]:
        self._check_open()
        coming = sorted(timer[:2] for timer in self._all_timers() if after < timer[0] <= until)
        return [owner for _, owner in coming[:limit]]

    async def next_due(self) -> int | None:
        self._check_open()
        return min((timer[0] for timer in self._all_timers()), default=None)

    def _all_timers(self) -> Iterable[tuple[int, int, str, bytes]]:
        for execution_id, execution in self._executions.items():
            for timer_id, (due, payload) in execution.timers.items():
                yield due, execution_id, timer_id, payload

    # -- pools ------------------------------------------------------------------------------------------------------

    async def set_limit(self, limit: Limit) -> None:
        self._check_open()
        self._limits[limit.pool, limit.tenant] = limit.concurrency

    async def remove_limit(self, pool: str, tenant: str) -> bool:
        self._check_open()
        return self._limits.pop((pool, tenant), None) is not None

    async def limits(self) -> list[Limit]:
        self._check_open()
        return [Limit(*place, most) for place, most in sorted(self._limits.items())]

    async def set_resource(self, resource: Resource) -> None:
        self._check_open()
        previous = self._resources.get(resource.name)
        full_at = 0 if previous is None else carried_over(resource, previous.full_at, self._clock.now())
        self._resources[resource.name] = ResourceRecord(resource, full_at)

    async def remove_resource(self, name: str) -> bool:
        self._check_open()
        return self._resources.pop(name, None) is not None

    async def resources(self) -> list[ResourceRecord]:
        self._check_open()
        return list(self._held_resources().values())

    async def shares(self) -> list[Share]:
        self._check_open()
        commands = self._all_commands()
        counts = Counter((command.pool, self._tenant_of(command), command.state) for command in commands)
        shares = []
        for pool, tenant in sorted({(pool, tenant) for pool, tenant, state in counts if state != "held"}):
            waiting = [
                command.command_id
                for command in commands
                if (command.pool, self._tenant_of(command), command.state) == (pool, tenant, "issued")
            ]
            shares.append(Share(pool, tenant, len(waiting), counts[pool, tenant, "claimed"], min(waiting, default=0)))
        return shares

    async def queue_heads(self, tenant: str, limit: int = 100) -> list[QueueHead]:
        self._check_open()
        heads: dict[tuple[str, tuple[str, ...], tuple[str, ...]], CommandRecord] = {}
        for command in self._all_commands():
            lane = (command.pool, command.kinds, command.resources)
            if command.state == "issued" and self._tenant_of(command) == tenant:
                heads[lane] = min(heads.get(lane, command), command, key=attrgetter("order", "command_id"))
        return [
            QueueHead(command.pool, command.kinds, command.command_id, command.execution_id, command.step)
            for _, command in sorted(heads.items(), key=itemgetter(0))
        ][:limit]

    async def contest(self, pool: str) -> Contest:
        self._check_open()
        tenants = sorted(
            {
                self._tenant_of(command)
                for command in self._all_commands()
                if command.pool == pool and command.state == "issued"
            }
        )
        return Contest(
            tuple(sorted({*tenants[:1], *tenants[-1:]})), any(where in ("", pool) for where, _ in self._limits)
        )

    async def ahead(self, execution_id: int, command_id: int) -> int:
        self._check_open()
        execution = self._executions.get(execution_id)
        mine = None if execution is None else execution.commands.get(command_id)
        if mine is None:
            return 0
        place = (mine.pool, self._tenant_of(mine))
        return sum(
            1
            for command in self._all_commands()
            if command.state == "issued"
            and (command.pool, self._tenant_of(command)) == place
            and (command.order, command.command_id) < (mine.order, mine.command_id)
        )

    async def see_worker(self, worker: WorkerRecord, forget: int) -> bool:
        self._check_open()
        self._seen = {key: worker for key, worker in self._seen.items() if worker.seen_at >= forget}
        previous = self._seen.get(worker.worker_id)
        leaving = previous is not None and previous.draining
        self._seen[worker.worker_id] = replace(worker, draining=leaving)
        return leaving

    async def workers(self) -> list[WorkerRecord]:
        self._check_open()
        return sorted(self._seen.values(), key=attrgetter("worker_id"))

    async def drain_worker(self, worker_id: str) -> bool:
        self._check_open()
        record = self._seen.get(worker_id)
        if record is not None:
            self._seen[worker_id] = replace(record, draining=True)
        return record is not None


def _issued(execution_id: int, command: NewCommand) -> CommandRecord:
    grant = command.grant
    state, fence, worker_id, lease_until = (
        ("held" if command.held else "issued", 0, "", 0)
        if grant is None
        else ("claimed", 1, grant.worker_id, grant.lease_until)
    )
    return CommandRecord(
        command.command_id,
        execution_id,
        command.step,
        command.run,
        command.kinds,
        command.pool,
        command.items,
        state,
        fence,
        worker_id,
        lease_until,
        command.order,
        command.resources,
    )
