"""The client for asyncio programs: all of `ports.views.api`, and shortcuts for common requests."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec.structs import replace

from arclog.client.administration import RemoteAudit, RemoteCredentials, RemoteKeys, RemotePools, RemoteSchedules
from arclog.client.api import RemoteApi, log_lines
from arclog.client.calls import address_of
from arclog.client.connection import Connection
from arclog.model.config.settings import Settings
from arclog.model.errors import RunFailed, ServerUnavailable, SettingsError
from arclog.operations import events as ops
from arclog.operations.operation import Operation
from arclog.ports.storage.task_logs import ANY_LINE, LogFilter
from arclog.ports.views.api import ExecuteRequest, Started, Summary

if TYPE_CHECKING:
    import httpx2

# ── follow ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# A run's events and log lines as they happen, over server-sent events.
#
# Order and completeness depend only on `seq` (a line's `position`): after a lost connection the client continues after
# the last record that it has, and no record is returned twice. The stream ends with the run, not with the connection.

#: An event with its envelope is far smaller than this; a server that sends more is not an arclog server.
_LARGEST_EVENT = 64 * 1024 * 1024


class _NoStream(ServerUnavailable):
    """The answer is not a stream of events, and a retry would not change that."""


async def _follow_events(
    connection: Connection, api: RemoteApi, execution_id: str, *, after: int = 0, types: Sequence[str] = ()
) -> AsyncGenerator[dict[str, Any], None]:
    """Full envelopes after a seq, to the run's end. Raises NotFound, or ServerUnavailable after `client.patience_s`."""

    async def has_more(last: int) -> bool:
        return bool(await api.events(execution_id, after=last, limit=1, types=types))

    wanted = ops.FollowEvents(execution_id, after, types=list(types))
    async for event in _followed(connection, api, ops.STREAM, wanted, "seq", has_more):
        yield event


async def _follow_logs(
    connection: Connection, api: RemoteApi, execution_id: str, *, after: int = 0, where: LogFilter = ANY_LINE
) -> AsyncGenerator[dict[str, Any], None]:
    """Task log lines after a position, to the run's end. Raises as `follow` does."""

    async def has_more(last: int) -> bool:
        return bool(await api.logs(execution_id, after=last, limit=1, where=where))

    wanted = replace(log_lines(execution_id, where), after=after)
    async for line in _followed(connection, api, ops.LOG_STREAM, wanted, "position", has_more):
        yield line


async def _followed(
    connection: Connection,
    api: RemoteApi,
    operation: Operation[None],
    wanted: ops.FollowEvents | ops.LogLines,
    key: str,
    has_more: Callable[[int], Awaitable[bool]],
) -> AsyncGenerator[dict[str, Any], None]:
    patience = connection.patience()
    last = wanted.after
    while True:
        over = (await api.status(wanted.execution_id)).ended_at is not None
        try:
            path, query = address_of(operation, replace(wanted, after=last))
            async with connection.streamed(path, params=query) as answer:
                patience.renew()
                async for record in _records(answer, key):
                    if record[key] <= last:
                        continue
                    last = record[key]
                    yield record
                    patience.renew()
        except _NoStream:
            raise
        except ServerUnavailable:
            if not await patience.more():
                raise
            continue
        # A stream also ends when its server stops, so the run has ended only if that was known before and no record is
        # left.
        if over and not await has_more(last):
            return
        await patience.more()


async def _records(answer: httpx2.Response, key: str) -> AsyncGenerator[dict[str, Any], None]:
    import httpx2

    try:
        async for message in httpx2.EventSource(answer, max_event_size=_LARGEST_EVENT):
            if not message.data:
                continue
            record = msgspec.json.decode(message.data)
            if isinstance(record, dict) and isinstance(record.get(key), int):
                yield record
    except (httpx2.SSEError, msgspec.DecodeError) as problem:
        raise _NoStream(f"the server's stream cannot be understood: {problem}") from None


# ── asynchronous ──────────────────────────────────────────────────────────────────────────────────────────────────────

#: The default address of `arclog up`.
DEFAULT_SERVER = "http://127.0.0.1:8420"


class AsyncClient(RemoteApi):
    """A client of a server, for asyncio.

    Without arguments it uses the server in `ARCLOG_SERVER`, else the one on this machine, with the token in `ARCLOG_TOKEN`.
    """

    def __init__(
        self, server: str = "", *, token: str = "", settings: Settings | Mapping[str, Any] | None = None
    ) -> None:
        in_use = settings if isinstance(settings, Settings) else Settings(settings)
        url = server or in_use.text("client.server") or os.environ.get("ARCLOG_SERVER", "") or DEFAULT_SERVER
        self._connection = Connection(url, in_use, token=token or token_of(in_use))
        super().__init__(self._connection, in_use)

    @property
    def pools(self) -> RemotePools:
        """Pools, resources and workers."""
        return RemotePools(self._connection)

    @property
    def schedules(self) -> RemoteSchedules:
        """Schedules."""
        return RemoteSchedules(self._connection)

    @property
    def keys(self) -> RemoteKeys:
        """API keys of the caller's tenant."""
        return RemoteKeys(self._connection)

    @property
    def audits(self) -> RemoteAudit:
        """The audit log: granted and denied requests."""
        return RemoteAudit(self._connection)

    @property
    def credentials(self) -> RemoteCredentials:
        """Secrets for keychain entries."""
        return RemoteCredentials(self._connection)

    @property
    def server(self) -> str:
        """The address of the server."""
        return self._connection.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; a second call does nothing."""
        await self._connection.close()

    async def start(
        self,
        playbook: str = "",
        workload: Mapping[str, Any] | None = None,
        *,
        path: str = "",
        version: int = 0,
        files: Mapping[str, str] | None = None,
        idempotency_key: str = "",
        priority: int | None = None,
    ) -> Started:
        """Start a run of a playbook's text, or of the catalog's playbook under `path`. The run is durable when this
        returns.

        Raises PlaybookError, NotFound or RequestRejected.
        """
        return await self.execute(
            ExecuteRequest(
                playbook=playbook,
                workload=workload or {},
                path=path,
                version=version,
                files=files or {},
                idempotency_key=idempotency_key,
                priority=priority,
            )
        )

    async def run(
        self,
        playbook: str = "",
        workload: Mapping[str, Any] | None = None,
        *,
        path: str = "",
        version: int = 0,
        timeout_s: float | None = None,
        check: bool = True,
    ) -> Summary:
        """Start a run and wait for its end, at most `timeout_s`; after that the summary has the state RUNNING, and the
        run continues.

        Raises RunFailed, which carries the summary, when the run failed or was cancelled; with `check=False` the
        summary is returned in any case.
        """
        started = await self.start(playbook, workload, path=path, version=version)
        await self.ended(started.execution_id, timeout_s=timeout_s)
        summary = await self.summary(started.execution_id)
        if check and summary.state in ("FAILED", "CANCELLED"):
            raise RunFailed(summary)
        return summary

    def follow(
        self, execution_id: str, *, after: int = 0, types: Sequence[str] = ()
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The run's events as they happen, to its end and across restarts of the server, each exactly once."""
        return _follow_events(self._connection, self, execution_id, after=after, types=types)

    def follow_logs(
        self, execution_id: str, *, after: int = 0, where: LogFilter = ANY_LINE
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Output of the run's tasks as it is printed, to the run's end, each line exactly once."""
        return _follow_logs(self._connection, self, execution_id, after=after, where=where)


def token_of(settings: Settings) -> str:
    """The token in the file that settings name, else that of the environment, else none."""
    file = settings.text("client.token_file")
    if not file:
        return os.environ.get("ARCLOG_TOKEN", "")
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not a text"
        raise SettingsError(f"the token file {file} cannot be read: {why}") from None
