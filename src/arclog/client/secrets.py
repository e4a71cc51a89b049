"""The secrets that a server keeps, as a worker on another machine finds them: sealed. What opens them is never sent."""

from __future__ import annotations

from arclog.client.link import Link
from arclog.model.errors import NotFound
from arclog.ports import work
from arclog.ports.secrets import SealedSecret


class ServerSecrets:
    """Implements `ports.secrets.SecretSource`. Asked again each time, so what was changed is seen at once."""

    place = "the server"

    def __init__(self, link: Link) -> None:
        self._link = link

    async def find(self, name: str, scope: str) -> SealedSecret | None:
        try:
            return (await self._link.ask("secret", work.SecretAsked(name, scope), work.SecretFound)).secret
        except NotFound:  # it keeps none, or none of this tenant for us
            return None
