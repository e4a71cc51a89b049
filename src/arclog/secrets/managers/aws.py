"""AWS Secrets Manager.

Credentials come from the first available source: a file or the environment, a web identity (EKS), a container's service
(ECS, EKS Pod Identity), or the instance (EC2, with IMDSv2).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import html
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable, SettingsError
from arclog.model.ids import MICROS
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

_REMEDY = "check the policy of the identity that sends the request, and its credentials"
_CONTAINER = "http://169.254.170.2"
_INSTANCE = "http://169.254.169.254"
#: A secret name for the health check, and the errors that prove that the service knows the caller.
_PROBE = "arclog-doctor"
_KNOWN_CALLER = frozenset({"ResourceNotFoundException", "AccessDeniedException"})
_PASSING = frozenset({"ThrottlingException", "Throttling", "InternalServiceError", "RequestLimitExceeded"})


class Keys(NamedTuple):
    access_key: str
    secret_key: str
    session_token: str = ""


class AwsSecretsManager:
    """Implements `ports.secrets.SecretManager`."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        environment = os.environ.get
        self._region = (
            settings.text("secrets.aws_region")
            or environment("AWS_REGION", "")
            or environment("AWS_DEFAULT_REGION", "")
        )
        if not re.fullmatch(r"[a-z0-9-]+", self._region):
            raise SettingsError("secrets.manager is aws: set ARCLOG_SECRETS_AWS_REGION, or AWS_REGION")
        endpoint = settings.text("secrets.manager_url") or environment("AWS_ENDPOINT_URL_SECRETS_MANAGER", "")
        suffix = "amazonaws.com.cn" if self._region.startswith("cn-") else "amazonaws.com"
        self._url = checked_address(
            endpoint or f"https://secretsmanager.{self._region}.{suffix}", "ARCLOG_SECRETS_MANAGER_URL"
        )
        self._sts = environment("AWS_ENDPOINT_URL_STS", "") or f"https://sts.{self._region}.{suffix}"
        self._settings = settings
        self._clock = clock
        self._http = ManagerHttp("AWS Secrets Manager", settings)
        self._login = Login(clock, settings, self._fetch_keys)
        self.paths = Paths(settings)
        self.place = "AWS Secrets Manager"

    async def read(self, path: str) -> str:
        answer = await self._request(path)
        code = _code(answer)
        if code == "ResourceNotFoundException":
            raise SecretNotThere(path)
        if answer.status != 200:
            if code in _PASSING:
                answer = Answer(503, b"")
            raise self._http.refusal(answer, self._url, code, _REMEDY)
        text, binary = answer.fields.get("SecretString"), answer.fields.get("SecretBinary")
        if isinstance(text, str):
            return text
        try:
            return base64.b64decode(str(binary), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise SecretUnavailable(f"the secret {path} of AWS Secrets Manager is not text", kind="config") from None

    async def check(self) -> None:
        answer = await self._request(_PROBE)
        if answer.status != 200 and _code(answer) not in _KNOWN_CALLER:
            raise self._http.refusal(answer, self._url, _code(answer), _REMEDY)

    def forget(self) -> None:
        self._login.forget()

    async def close(self) -> None:
        await self._http.close()

    async def _request(self, name: str) -> Answer:
        keys = await self._login.token()
        body = msgspec.json.encode({"SecretId": name})
        at = datetime.fromtimestamp(self._clock.now() / MICROS, UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = signed(
            "POST",
            f"{self._url}/",
            {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "secretsmanager.GetSecretValue"},
            body,
            **keys._asdict(),
            region=self._region,
            service="secretsmanager",
            at=at,
        )
        return await self._http.ask("POST", f"{self._url}/", headers=headers, body=body)

    # -- credentials --------------------------------------------------------------------------------------------------

    async def _fetch_keys(self) -> tuple[Keys, float | None]:
        text = credentials_text(self._settings)
        if text:
            return self._keys(json_fields(text) or {}, "ARCLOG_SECRETS_MANAGER_CREDENTIALS_FILE")
        environment = os.environ.get
        if environment("AWS_ACCESS_KEY_ID"):
            secret, token = environment("AWS_SECRET_ACCESS_KEY", ""), environment("AWS_SESSION_TOKEN", "")
            return Keys(environment("AWS_ACCESS_KEY_ID", ""), secret, token), None
        if environment("AWS_WEB_IDENTITY_TOKEN_FILE") and environment("AWS_ROLE_ARN"):
            return await self._by_web_identity()
        full, relative = (environment(f"AWS_CONTAINER_CREDENTIALS_{kind}_URI", "") for kind in ("FULL", "RELATIVE"))
        if full or relative:
            return await self._by_container(full or f"{_CONTAINER}{relative}")
        return await self._by_instance((environment("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _INSTANCE).rstrip("/"))

    async def _by_web_identity(self) -> tuple[Keys, float | None]:
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": os.environ["AWS_ROLE_ARN"],
            "RoleSessionName": os.environ.get("AWS_ROLE_SESSION_NAME", "arclog"),
            "WebIdentityToken": file_text(os.environ["AWS_WEB_IDENTITY_TOKEN_FILE"], "AWS_WEB_IDENTITY_TOKEN_FILE"),
        }
        answer = await self._http.ask("POST", f"{checked_address(self._sts, 'AWS_ENDPOINT_URL_STS')}/", form=form)
        text = answer.body.decode("utf-8", "replace")
        if answer.status != 200:
            raise self._http.refusal(
                answer, self._sts, _tag(text, "Code"), "check AWS_ROLE_ARN and the role's trust policy"
            )
        fields = {name: _tag(text, name) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")}
        return self._keys(fields, "STS")

    async def _by_container(self, url: str) -> tuple[Keys, float | None]:
        token = os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
        if file := os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
            token = file_text(file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        answer = await self._http.ask("GET", url, headers={"Authorization": token} if token else {})
        if answer.status != 200:
            raise self._http.refusal(answer, url, "", "the container's credentials service refuses this process")
        return self._keys(answer.fields, "the container's credentials service")

    async def _by_instance(self, url: str) -> tuple[Keys, float | None]:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
        session = await self._http.ask("PUT", f"{url}/latest/api/token", headers=lifetime)
        headers = {"X-aws-ec2-metadata-token": session.body.decode("latin-1")}
        roles = f"{url}/latest/meta-data/iam/security-credentials/"
        role = await self._http.ask("GET", roles, headers=headers)
        if session.status != 200 or role.status != 200:
            message = "there are no credentials for AWS: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a file"
            raise SecretUnavailable(f"{message}, or give the machine a role", kind="config")
        answer = await self._http.ask("GET", roles + role.body.decode("latin-1").split("\n")[0], headers=headers)
        return self._keys(answer.fields, "the instance's metadata")

    def _keys(self, fields: Mapping[str, Any], source: str) -> tuple[Keys, float | None]:
        def text(*names: str) -> str:
            return next((value for name in names if isinstance(value := fields.get(name), str) and value), "")

        access, secret = text("AccessKeyId", "access_key_id"), text("SecretAccessKey", "secret_access_key")
        if not access or not secret:
            message = f"{source} returned no AccessKeyId and SecretAccessKey"
            raise SecretUnavailable(message, kind="config")
        ends = text("Expiration")
        try:
            lasts = datetime.fromisoformat(ends).timestamp() - self._clock.now() / MICROS if ends else None
        except ValueError:
            lasts = None
        return Keys(access, secret, text("Token", "SessionToken", "session_token")), lasts


def _code(answer: Answer) -> str:
    """Return the service's error code."""
    return str(answer.fields.get("__type", "")).rpartition("#")[2]


def _tag(text: str, name: str) -> str:
    """Return the text of the first element of that name."""
    element = re.search(rf"<{name}>([^<]*)</{name}>", text)
    return html.unescape(element[1].strip()) if element else ""


# AWS Signature Version 4 of a request with a body and no query. No I/O.


_ALGORITHM = "AWS4-HMAC-SHA256"


def signed(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    access_key: str,
    secret_key: str,
    session_token: str,
    region: str,
    service: str,
    at: str,
) -> dict[str, str]:
    """Return the headers of a request with its signature. `at` is the time in the form 20150830T123600Z."""
    parts = urlsplit(url)
    sent = {**headers, "Host": parts.netloc, "X-Amz-Date": at}
    if session_token:
        sent["X-Amz-Security-Token"] = session_token
    lines = {name.lower(): " ".join(value.split()) for name, value in sent.items()}
    names = ";".join(sorted(lines))
    canonical = "\n".join(
        [
            method,
            parts.path or "/",
            parts.query,
            *(f"{name}:{lines[name]}" for name in sorted(lines)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{at[:8]}/{region}/{service}/aws4_request"
    to_sign = "\n".join([_ALGORITHM, at, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret_key}".encode()
    for part in (at[:8], region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    sent["Authorization"] = (
        f"{_ALGORITHM} Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    del sent["Host"]  # the client sends it
    return sent
