"""Posts OpenLineage events with the guarded client, which checks the destination of a request and follows no
redirects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arclog.engine.commits.engine import Engine
from arclog.engine.history.lineage import LineageSender
from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable
from arclog.ports.secrets import Secrets

if TYPE_CHECKING:
    from arclog.drivers.http.fetch import Fetcher

#: Statuses for a credential that is not accepted.
_UNAUTHORIZED = frozenset({401, 403})
#: Statuses after which the same request may succeed later.
_LATER = frozenset({408, 425, 429, *_UNAUTHORIZED})
#: The prefix of a stored secret's name in `lineage.auth`.
_REFERENCE = "secret:"


class LineagePoster:
    """One client, created when the first event is sent."""

    def __init__(self, settings: Settings, secrets: Secrets | None = None) -> None:
        self._settings = settings
        self._secrets = secrets
        self._url = settings.text("lineage.url")
        self._auth = settings.text("lineage.auth")
        self._fetcher: Fetcher | None = None

    async def post(self, body: bytes) -> tuple[str, bool]:
        """POST an event. Returns '' if it was accepted, else the reason, and whether the refusal is final."""
        from arclog.drivers.http.fetch import Fetcher, NoAnswer
        from arclog.drivers.http.guard import guard_of

        if self._fetcher is None:
            guard = guard_of(self._settings, "lineage.allow_networks", "lineage")
            timeout_s = self._settings.number("lineage.timeout_s")
            self._fetcher = Fetcher(self._settings, guard, timeout_s=timeout_s, max_bytes=0)
        headers = {"content-type": "application/json"}
        try:
            if credential := await self._credential():
                headers["authorization"] = credential
            status = (await self._fetcher.ask("POST", self._url, headers=headers, body=body, read=False)).status
        except SecretUnavailable as problem:
            return f"lineage.auth: {problem}", False
        except NoAnswer as problem:
            return f"lineage.url: {problem}", False
        if 200 <= status < 300:
            return "", True
        if status in _UNAUTHORIZED:
            await self._refused()
        return f"lineage.url answered {status}", 300 <= status < 500 and status not in _LATER

    async def _credential(self) -> str:
        """The Authorization header; '' without one. Raises SecretUnavailable."""
        value = self._auth
        if value.startswith(_REFERENCE):
            if self._secrets is None:
                raise SecretUnavailable("this process cannot resolve secrets")
            secret = (await self._secrets.resolve(self._entry(), self._scope())).fields.get("value")
            if not isinstance(secret, str) or not secret:
                raise SecretUnavailable(f"the secret {value.removeprefix(_REFERENCE)!r} is not a single text")
            value = secret
        value = value.strip()
        return value if not value or " " in value else f"Bearer {value}"

    async def _refused(self) -> None:
        if self._secrets is not None and self._auth.startswith(_REFERENCE):
            await self._secrets.refused(self._entry(), self._scope())

    def _entry(self) -> dict[str, str]:
        return {"name": "lineage.auth", "kind": "secret", "secret": self._auth.removeprefix(_REFERENCE)}

    def _scope(self) -> str:
        return "/".join(self._settings.text(f"scope.{part}") for part in ("tenant", "project", "environment"))

    async def close(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()


def lineage_sender(engine: Engine, settings: Settings, owner: str, poster: LineagePoster) -> LineageSender:
    """The duty that sends lineage, by the settings."""
    return LineageSender(
        engine, owner, poster.post if settings.text("lineage.url") else None, settings.text("lineage.file")
    )
