"""HashiCorp Vault and compatible servers (OpenBao): key-value engine version 2, with a token or AppRole."""

from __future__ import annotations

import os
from urllib.parse import quote

import msgspec

from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable, SettingsError
from arclog.ports.clock import Clock
from arclog.secrets.managers.http import Answer, Login, ManagerHttp, SecretNotThere, checked_address, credentials_text
from arclog.secrets.naming import Paths, json_fields

_REMEDY = "check the token's policy, and ARCLOG_SECRETS_MANAGER_CREDENTIALS_FILE or VAULT_TOKEN"
#: The field of a secret with a single value.
_VALUE = "value"


class Vault:
    """Implements `ports.secrets.SecretManager`."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        url = settings.text("secrets.manager_url") or os.environ.get("VAULT_ADDR", "")
        if not url:
            raise SettingsError("secrets.manager is vault: set ARCLOG_SECRETS_MANAGER_URL, or VAULT_ADDR")
        self._url = checked_address(url, "ARCLOG_SECRETS_MANAGER_URL")
        self._mount = quote(settings.text("secrets.vault_mount").strip("/"))
        self._namespace = settings.text("secrets.vault_namespace") or os.environ.get("VAULT_NAMESPACE", "")
        self._settings = settings
        self._http = ManagerHttp("Vault", settings)
        self._login = Login(clock, settings, self._fetch_token)
        self.paths = Paths(settings)
        self.place = "Vault"

    async def read(self, path: str) -> str:
        url = f"{self._url}/v1/{self._mount}/data/{quote(path)}"
        answer = await self._request("GET", url)
        if answer.status == 404:
            raise SecretNotThere(path)
        if answer.status != 200:
            raise self._http.refusal(answer, url, "", _REMEDY)
        data = answer.fields.get("data")
        secret = data.get("data") if isinstance(data, dict) else None
        if not isinstance(secret, dict) or not secret:
            raise SecretNotThere(path)  # its last version was deleted
        if secret.keys() == {_VALUE} and isinstance(secret[_VALUE], str):
            return str(secret[_VALUE])
        return msgspec.json.encode(secret).decode()

    async def check(self) -> None:
        url = f"{self._url}/v1/auth/token/lookup-self"
        answer = await self._request("GET", url)
        if answer.status != 200:
            raise self._http.refusal(answer, url, "", _REMEDY)

    def forget(self) -> None:
        self._login.forget()

    async def close(self) -> None:
        await self._http.close()

    async def _request(self, method: str, url: str) -> Answer:
        answer = await self._http.ask(
            method, url, headers={**self._headers(), "X-Vault-Token": await self._login.token()}
        )
        if answer.status == 403 and self._login.renewable:
            self._login.forget()  # it may have been revoked
            headers = {**self._headers(), "X-Vault-Token": await self._login.token()}
            answer = await self._http.ask(method, url, headers=headers)
        return answer

    def _headers(self) -> dict[str, str]:
        return {"X-Vault-Namespace": self._namespace} if self._namespace else {}

    async def _fetch_token(self) -> tuple[str, float | None]:
        text = credentials_text(self._settings) or os.environ.get("VAULT_TOKEN", "").strip()
        if not text:
            message = "there is no token for Vault: set VAULT_TOKEN, or ARCLOG_SECRETS_MANAGER_CREDENTIALS_FILE"
            raise SecretUnavailable(message, kind="config")
        role = json_fields(text)
        if role is None:
            return text, None
        if not all(isinstance(role.get(key), str) for key in ("role_id", "secret_id")):
            raise SecretUnavailable(
                "the credentials of Vault are neither a token nor {role_id, secret_id}", kind="config"
            )
        url = f"{self._url}/v1/auth/{quote(str(role.get('mount', 'approle')))}/login"
        body = msgspec.json.encode({key: role[key] for key in ("role_id", "secret_id")})
        answer = await self._http.ask("POST", url, headers=self._headers(), body=body)
        login = answer.fields.get("auth")
        if answer.status != 200 or not isinstance(login, dict) or not isinstance(login.get("client_token"), str):
            raise self._http.refusal(answer, url, "", "check role_id and secret_id")
        lasts = login.get("lease_duration")
        return str(login["client_token"]), float(lasts) if isinstance(lasts, int) and lasts else None
