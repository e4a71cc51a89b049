"""Runs nats tasks: one attempt is one operation on a connection that tasks share."""

from __future__ import annotations

from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.errors import ResultUnavailable
from arclog.model.outcome import Outcome, error, failed
from arclog.ports.tool import TaskContext
from arclog.tools.nats import kv
from arclog.tools.nats.config import NatsConfig, check
from arclog.tools.nats.failure import Failure
from arclog.tools.nats.link import Link
from arclog.tools.nats.links import Links
from arclog.tools.nats.publish import publish, request
from arclog.tools.nats.pull import acknowledge, fetch
from arclog.tools.nats.where import target_of


class NatsTool:
    """Runs nats tasks."""

    Config: type[Struct] = NatsConfig

    def __init__(self, settings: Settings) -> None:
        self._links = Links(settings)
        self._max_messages = settings.integer("nats.max_messages")
        self._max_bytes = settings.integer("nats.max_bytes")
        self._max_entries = settings.integer("nats.max_entries")

    async def run(self, config: NatsConfig, context: TaskContext) -> Outcome:
        try:
            check(config)
            target = target_of(config, context.auth, context.scope)
            async with self._links.to(target) as link:
                return await self._do(link, config, context)
        except Failure as failure:
            return failed(failure.problem)
        except ResultUnavailable as lost:
            return failed(error("result", str(lost)))

    async def execution_ended(self, execution_id: str) -> None:
        """Connections serve every execution of their scope."""

    async def close(self) -> None:
        await self._links.close()

    async def _do(self, link: Link, config: NatsConfig, context: TaskContext) -> Outcome:
        match config.op:
            case "publish":
                return await publish(link, config, context)
            case "request":
                return await request(link, config, context)
            case "fetch":
                return await fetch(link, config, context, self._max_messages, self._max_bytes)
            case "ack":
                return await acknowledge(link, config, context)
            case "kv_get":
                return await kv.get(link, config, context)
            case "kv_keys":
                return await kv.keys(link, config, context, self._max_entries)
            case "kv_history":
                return await kv.history(link, config, context, self._max_entries)
            case _:
                return await kv.write(link, config, context)
