"""Google Secret Manager.

The process authenticates with a service account's key file or with the machine's metadata service (GCE, GKE with
workload identity).
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any

import msgspec

from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable, SettingsError
from arclog.model.ids import MICROS
from arclog.ports.clock import Clock
from arclog.secrets.files import read_small
from arclog.secrets.managers.http import Answer, Login, ManagerHttp, SecretNotThere, checked_address, credentials_text
from arclog.secrets.naming import Paths, json_fields

_SERVICE = "https://secretmanager.googleapis.com"
_ACCESS = "https://www.googleapis.com/auth/cloud-platform"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_REMEDY = "give the service account the role roles/secretmanager.secretAccessor"
_PROBE = "arclog-doctor"
#: Lifetime of an assertion, in seconds.
_ASSERTED_S = 3600


class GoogleSecretManager:
    """Implements `ports.secrets.SecretManager`."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        url = settings.text("secrets.manager_url") or _SERVICE
        self._url = checked_address(url, "ARCLOG_SECRETS_MANAGER_URL")
        self._project = settings.text("secrets.google_project") or os.environ.get("GOOGLE_CLOUD_PROJECT", "")
        self._metadata = (
            f"http://{os.environ.get('GCE_METADATA_HOST') or 'metadata.google.internal'}/computeMetadata/v1"
        )
        self._settings = settings
        self._clock = clock
        self._http = ManagerHttp("Google Secret Manager", settings)
        self._login = Login(clock, settings, self._fetch_token)
        self.paths = Paths(settings, "--", r"[A-Za-z0-9_-]{1,255}")
        self.place = "Google Secret Manager"

    async def read(self, path: str) -> str:
        url, answer = await self._request(path)
        if answer.status == 404:
            raise SecretNotThere(path)
        if answer.status != 200:
            raise self._http.refusal(answer, url, _status(answer), _REMEDY)
        payload = answer.fields.get("payload")
        data = payload.get("data") if isinstance(payload, dict) else None
        try:
            return base64.b64decode(str(data), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise SecretUnavailable(f"the secret {path} of Google Secret Manager is not text", kind="config") from None

    async def check(self) -> None:
        url, answer = await self._request(_PROBE)
        # A caller that may not read the secret is authenticated.
        if answer.status not in (200, 403, 404):
            raise self._http.refusal(answer, url, _status(answer), _REMEDY)

    def forget(self) -> None:
        self._login.forget()

    async def close(self) -> None:
        await self._http.close()

    async def _request(self, name: str) -> tuple[str, Answer]:
        token = await self._login.token()
        project = self._project or await self._own_project()
        url = f"{self._url}/v1/projects/{project}/secrets/{name}/versions/latest:access"
        return url, await self._http.ask("GET", url, headers={"Authorization": f"Bearer {token}"})

    # -- authentication ------------------------------------------------------------------------------------------------

    def _account(self) -> dict[str, Any]:
        """Return the service account's key; {} if there is none."""
        text = credentials_text(self._settings)
        name = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
        if not text and name:
            try:
                text = read_small(Path(name), self._settings.integer("secrets.max_bytes")).decode()
            except (OSError, ValueError) as problem:
                why = getattr(problem, "strerror", None) or type(problem).__name__
                message = f"GOOGLE_APPLICATION_CREDENTIALS: {name} cannot be read: {why}"
                raise SecretUnavailable(message, kind="config") from None
        if not text:
            return {}
        account = json_fields(text) or {}
        if account.get("type") != "service_account":
            raise SecretUnavailable("the Google credentials are not a key file of a service account", kind="config")
        return account

    async def _fetch_token(self) -> tuple[str, float | None]:
        account = self._account()
        if account:
            url, form = str(account.get("token_uri", "")), {"grant_type": _GRANT, "assertion": self._assertion(account)}
            try:
                answer = await self._http.ask("POST", checked_address(url, "token_uri of the key file"), form=form)
            except SettingsError as problem:
                raise SecretUnavailable(str(problem), kind="config") from None
        else:
            url = f"{self._metadata}/instance/service-accounts/default/token"
            answer = await self._http.ask("GET", url, headers={"Metadata-Flavor": "Google"})
        token, lasts = answer.fields.get("access_token"), answer.fields.get("expires_in")
        if answer.status != 200 or not isinstance(token, str):
            raise self._http.refusal(
                answer, url, str(answer.fields.get("error", "")), "check the service account's key"
            )
        return token, float(lasts) if isinstance(lasts, int) else None

    def _assertion(self, account: dict[str, Any]) -> str:
        """Return the JWT with which a service account requests a token."""
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import padding, rsa

        try:
            key = serialization.load_pem_private_key(str(account.get("private_key", "")).encode(), None)
        except (ValueError, TypeError):
            raise SecretUnavailable(
                "the key file of the service account contains no usable private_key", kind="config"
            ) from None
        if not isinstance(key, rsa.RSAPrivateKey):
            raise SecretUnavailable("the private_key of the service account is not an RSA key", kind="config")
        now = self._clock.now() // MICROS
        claims = {"iss": account.get("client_email"), "scope": _ACCESS, "aud": account.get("token_uri")}
        head = {"alg": "RS256", "typ": "JWT", "kid": account.get("private_key_id")}
        signed = ".".join(map(_encoded, (head, {**claims, "iat": now, "exp": now + _ASSERTED_S})))
        signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"

    async def _own_project(self) -> str:
        """Return the project of the credentials."""
        project = self._account().get("project_id")
        if not isinstance(project, str):
            url = f"{self._metadata}/project/project-id"
            answer = await self._http.ask("GET", url, headers={"Metadata-Flavor": "Google"})
            project = answer.body.decode("latin-1").strip() if answer.status == 200 else ""
        if not project:
            raise SecretUnavailable("secrets.manager is google: set ARCLOG_SECRETS_GOOGLE_PROJECT", kind="config")
        self._project = project
        return project


def _encoded(value: dict[str, Any]) -> str:
    return _base64(msgspec.json.encode(value))


def _base64(body: bytes) -> str:
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def _status(answer: Answer) -> str:
    """Return the service's error status."""
    problem = answer.fields.get("error")
    return str(problem.get("status", "")) if isinstance(problem, dict) else ""
