"""The client for asyncio programs: `ports.views.api` whole, and short ways to what is asked for most."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from arclog.client.access import RemoteAudit, RemoteCredentials, RemoteKeys
from arclog.client.api import RemoteApi
from arclog.client.connection import Connection
from arclog.client.follow import follow, follow_logs
from arclog.client.pools import RemotePools
from arclog.client.schedules import RemoteSchedules
from arclog.model.config.settings import Settings
from arclog.model.errors import RunFailed, SettingsError
from arclog.ports.storage.task_logs import ANY_LINE, LogFilter
from arclog.ports.views.api import ExecuteRequest, Started, Summary

#: Where `arclog up` listens unless told otherwise.
DEFAULT_SERVER = "http://127.0.0.1:8420"


class AsyncClient(RemoteApi):
    """A server, as one caller sees it.

    Without arguments it is the one that `ARCLOG_SERVER` names, else the one on this machine; the token is `ARCLOG_TOKEN`.
    """

    def __init__(self, server: str = "", *, token: str = "", settings: Settings | None = None) -> None:
        known = settings or Settings()
        url = server or known.text("client.server") or os.environ.get("ARCLOG_SERVER", "") or DEFAULT_SERVER
        self._link = Connection(url, known, token=token or token_of(known))
        super().__init__(self._link, known)

    @property
    def pools(self) -> RemotePools:
        """Pools, resources and workers."""
        return RemotePools(self._link)

    @property
    def schedules(self) -> RemoteSchedules:
        """Which playbook runs when."""
        return RemoteSchedules(self._link)

    @property
    def keys(self) -> RemoteKeys:
        """API keys of the caller's tenant."""
        return RemoteKeys(self._link)

    @property
    def audits(self) -> RemoteAudit:
        """What callers were granted and denied."""
        return RemoteAudit(self._link)

    @property
    def credentials(self) -> RemoteCredentials:
        """Secrets for keychain entries."""
        return RemoteCredentials(self._link)

    @property
    def server(self) -> str:
        """Its address."""
        return self._link.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._link.close()

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
        """Start a run of a playbook's text, or of what the catalog has under `path`; durable when it answers.

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
        """Start a run and wait for its end (at most so long: then the summary says RUNNING, and the run continues).

        Raises RunFailed, which carries the summary, when the run failed or was cancelled; with `check=False` the summary
        is returned whatever it says.
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
        """The run's events as they happen, to its end, also across restarts of the server: none missing, none twice."""
        return follow(self._link, self, execution_id, after=after, types=types)

    def follow_logs(
        self, execution_id: str, *, after: int = 0, where: LogFilter = ANY_LINE
    ) -> AsyncGenerator[dict[str, Any], None]:
        """What the run's tasks print, as they print it, to the run's end: none missing, none twice."""
        return follow_logs(self._link, self, execution_id, after=after, where=where)


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
