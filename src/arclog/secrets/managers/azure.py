"""Azure Key Vault.

The process authenticates with a client secret, a federated token (AKS workload identity) or the machine's managed
identity.
"""

from __future__ import annotations

import os
import re
from urllib.parse import urlencode, urlsplit

from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable, SettingsError
from arclog.ports.clock import Clock
from arclog.secrets.managers.http import (
    Answer,
    Login,
    ManagerHttp,
    SecretNotThere,
    checked_address,
    credentials_text,
    file_text,
)
from arclog.secrets.naming import Paths, json_fields

_VERSION = "7.4"
_AUTHORITY = "https://login.microsoftonline.com"
_IDENTITY = "http://169.254.169.254/metadata/identity/oauth2/token"
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_REMEDY = "give the identity the role Key Vault Secrets User"
_PROBE = "arclog-doctor"
_ID = re.compile(r"[A-Za-z0-9.-]{1,200}")


class AzureKeyVault:
    """Implements `ports.secrets.SecretManager`."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        url = settings.text("secrets.manager_url")
        if not url:
            raise SettingsError(
                "secrets.manager is azure: set ARCLOG_SECRETS_MANAGER_URL to the vault, https://NAME.vault.azure.net"
            )
        self._url = checked_address(url, "ARCLOG_SECRETS_MANAGER_URL")
        # vault.azure.net, or that of another cloud: the audience of the token is the service, not the vault.
        host = urlsplit(self._url).hostname or ""
        self._resource = f"https://{host.partition('.')[2] if '.vault.' in host else 'vault.azure.net'}"
        self._settings = settings
        self._http = ManagerHttp("Azure Key Vault", settings)
        self._login = Login(clock, settings, self._fetch_token)
        self.paths = Paths(settings, "--", r"[A-Za-z0-9-]{1,127}")
        self.place = "Azure Key Vault"

    async def read(self, path: str) -> str:
        answer = await self._request(path)
        if answer.status == 404:
            raise SecretNotThere(path)
        value = answer.fields.get("value")
        if answer.status != 200 or not isinstance(value, str):
            raise self._http.refusal(answer, self._url, _code(answer), _REMEDY)
        return value

    async def check(self) -> None:
        answer = await self._request(_PROBE)
        # A caller that may not read the secret is authenticated.
        if answer.status not in (200, 403, 404):
            raise self._http.refusal(answer, self._url, _code(answer), _REMEDY)

    def forget(self) -> None:
        self._login.forget()

    async def close(self) -> None:
        await self._http.close()

    async def _request(self, name: str) -> Answer:
        headers = {"Authorization": f"Bearer {await self._login.token()}"}
        return await self._http.ask("GET", f"{self._url}/secrets/{name}?api-version={_VERSION}", headers=headers)

    async def _fetch_token(self) -> tuple[str, float | None]:
        credentials = json_fields(credentials_text(self._settings)) or {}

        def text(name: str) -> str:
            return str(credentials.get(name) or os.environ.get(f"AZURE_{name.upper()}", ""))

        tenant, client, secret = text("tenant_id"), text("client_id"), text("client_secret")
        assertion = os.environ.get("AZURE_FEDERATED_TOKEN_FILE", "")
        if not secret and not assertion:
            return await self._by_machine(client)
        if not _ID.fullmatch(tenant) or not client:
            message = "Azure Key Vault needs tenant_id and client_id in addition to the client's secret or token"
            raise SecretUnavailable(f"{message} (AZURE_TENANT_ID, AZURE_CLIENT_ID)", kind="config")
        form = {"grant_type": "client_credentials", "client_id": client, "scope": f"{self._resource}/.default"}
        if secret:
            form["client_secret"] = secret
        else:
            form["client_assertion_type"] = _ASSERTION
            form["client_assertion"] = file_text(assertion, "AZURE_FEDERATED_TOKEN_FILE")
        try:
            authority = checked_address(os.environ.get("AZURE_AUTHORITY_HOST") or _AUTHORITY, "AZURE_AUTHORITY_HOST")
        except SettingsError as problem:
            raise SecretUnavailable(str(problem), kind="config") from None
        url = f"{authority}/{tenant}/oauth2/v2.0/token"
        return self._token(await self._http.ask("POST", url, form=form), url)

    async def _by_machine(self, client: str) -> tuple[str, float | None]:
        asked = {"api-version": "2018-02-01", "resource": self._resource}
        if client:
            asked["client_id"] = client
        endpoint = os.environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "")
        url = f"{endpoint.rstrip('/')}/metadata/identity/oauth2/token" if endpoint else _IDENTITY
        try:
            answer = await self._http.ask("GET", f"{url}?{urlencode(asked)}", headers={"Metadata": "true"})
        except SecretUnavailable as problem:
            message = f"{problem}; there is no managed identity, and AZURE_CLIENT_SECRET is not set"
            raise SecretUnavailable(message, kind="connection", retryable=True) from None
        return self._token(answer, url)

    def _token(self, answer: Answer, url: str) -> tuple[str, float | None]:
        token, lasts = answer.fields.get("access_token"), answer.fields.get("expires_in")
        if answer.status != 200 or not isinstance(token, str):
            code = str(answer.fields.get("error", ""))
            raise self._http.refusal(answer, url, code, "check the tenant, the client and its secret")
        try:
            return token, float(str(lasts))
        except ValueError:
            return token, None


def _code(answer: Answer) -> str:
    """Return the service's error code."""
    problem = answer.fields.get("error")
    return str(problem.get("code", "")) if isinstance(problem, dict) else ""
