"""Secret managers on this machine that speak the protocols of Vault, Google Secret Manager and Azure Key Vault as their
documentation has them: credentials are checked, names resolved, errors have the services' own bodies.
"""

from __future__ import annotations

import base64
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode()))


class Manager(ABC):
    """A server that answers requests as a secret manager does."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Request] = []
        #: answers everything with this status if it is set
        self.broken = 0

    @abstractmethod
    def answer(self, request: Request) -> tuple[int, Any]:
        """Return the status, and JSON or text."""

    def count(self, path: str) -> int:
        return sum(path in request.path for request in self.requests)


@contextmanager
def running(manager: Manager) -> Iterator[Any]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, unquote(parts.path), dict(parse_qsl(parts.query)), headers, body)
            manager.requests.append(request)
            status, answer = (manager.broken, {}) if manager.broken else manager.answer(request)
            content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = _serve  # noqa: N815 - the names of http.server

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    manager.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield manager
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class VaultServer(Manager):
    """Key-value engine version 2 under `secret/`, tokens and AppRole."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = {"root-token"}
        self.roles = {("role-1", "secret-id-1")}
        self.lease_s = 3600
        #: path → versions, the newest last; None: deleted
        self.kept: dict[str, list[dict[str, Any] | None]] = {}
        self.namespace = ""

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.headers.get("x-vault-namespace", "") != self.namespace:
            return 404, {"errors": ["no handler for route"]}
        if request.path == "/v1/auth/approle/login" and request.method == "POST":
            body = json.loads(request.body)
            if (body.get("role_id"), body.get("secret_id")) not in self.roles:
                return 400, {"errors": ["invalid role or secret ID"]}
            token = f"s.{len(self.requests)}"
            self.tokens.add(token)
            return 200, {"auth": {"client_token": token, "lease_duration": self.lease_s, "renewable": True}}
        if request.headers.get("x-vault-token") not in self.tokens:
            return 403, {"errors": ["permission denied"]}
        if request.path == "/v1/auth/token/lookup-self":
            return 200, {"data": {"policies": ["default"]}}
        if request.path.startswith("/v1/secret/data/"):
            versions = self.kept.get(request.path.removeprefix("/v1/secret/data/"))
            if not versions:
                return 404, {"errors": []}
            if versions[-1] is None:
                return 404, {"data": {"data": None, "metadata": {"deletion_time": "2026-01-01T00:00:00Z"}}}
            return 200, {"data": {"data": versions[-1], "metadata": {"version": len(versions)}}}
        return 404, {"errors": ["no handler for route"]}


class GoogleServer(Manager):
    """Secret Manager, the token server of OAuth 2 and the metadata service of a machine."""

    def __init__(self, verify: Callable[[str, str], dict[str, Any]]) -> None:
        """`verify`: the claims of an assertion whose signature is good for this audience; raises else."""
        super().__init__()
        self._verify = verify
        self.tokens: set[str] = set()
        self.kept: dict[str, str] = {}
        self.denied: set[str] = set()
        self.on_machine = False

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.path == "/token" and request.method == "POST":
            try:
                assert request.form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
                claims = self._verify(request.form["assertion"], f"{self.url}/token")
                assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
                assert claims["exp"] - claims["iat"] <= 3600
            except Exception as problem:
                return 400, {"error": "invalid_grant", "error_description": str(problem)}
            return 200, self._token()
        if request.path.startswith("/computeMetadata/v1/"):
            if not self.on_machine or request.headers.get("metadata-flavor") != "Google":
                return 403, "forbidden"
            return 200, "project-of-machine" if request.path.endswith("project-id") else self._token()
        word, _, token = request.headers.get("authorization", "").partition(" ")
        if word != "Bearer" or token not in self.tokens:
            return 401, {
                "error": {"code": 401, "status": "UNAUTHENTICATED", "message": "Request had invalid credentials"}
            }
        if not request.path.endswith("/versions/latest:access"):
            return 404, "not found"
        name = request.path.removeprefix("/v1/").removesuffix("/versions/latest:access")
        if name in self.denied:
            return 403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "Permission denied"}}
        if name not in self.kept:
            return 404, {"error": {"code": 404, "status": "NOT_FOUND", "message": f"Secret [{name}] not found"}}
        data = base64.b64encode(self.kept[name].encode()).decode()
        return 200, {"name": f"{name}/versions/1", "payload": {"data": data, "dataCrc32c": "1"}}

    def _token(self) -> dict[str, Any]:
        token = f"ya29.{len(self.requests)}"
        self.tokens.add(token)
        return {"access_token": token, "expires_in": 3599, "token_type": "Bearer"}


class AzureServer(Manager):
    """A vault, the token endpoint of a directory, and the identity service of a machine."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: set[str] = set()
        self.kept: dict[str, str] = {}
        self.denied: set[str] = set()
        self.clients = {("tenant-1", "client-1"): "client-secret-1"}
        self.federated = "federated-token-1"
        self.on_machine = False

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.path.endswith("/oauth2/v2.0/token") and request.method == "POST":
            return self._login(request.path.split("/")[1], request.form)
        if request.path == "/metadata/identity/oauth2/token":
            if not self.on_machine or request.headers.get("metadata") != "true" or "resource" not in request.query:
                return 400, {"error": "invalid_request", "error_description": "Identity not found"}
            return 200, self._token(str)
        word, _, token = request.headers.get("authorization", "").partition(" ")
        if word != "Bearer" or token not in self.tokens:
            return 401, {"error": {"code": "Unauthorized", "message": "AKV10000: Request is missing a Bearer token."}}
        if not request.query.get("api-version"):
            return 400, {"error": {"code": "BadParameter", "message": "api-version must be specified"}}
        name = request.path.removeprefix("/secrets/")
        if name in self.denied:
            return 403, {"error": {"code": "Forbidden", "message": "Caller is not authorized"}}
        if name not in self.kept:
            return 404, {"error": {"code": "SecretNotFound", "message": f"A secret with {name} was not found"}}
        return 200, {"value": self.kept[name], "id": f"{self.url}/secrets/{name}/1", "attributes": {"enabled": True}}

    def _login(self, tenant: str, form: dict[str, str]) -> tuple[int, Any]:
        expected = self.clients.get((tenant, form.get("client_id", "")))
        proved = form.get("client_secret") == expected or form.get("client_assertion") == self.federated
        if expected is None or not proved or form.get("scope") != "https://vault.azure.net/.default":
            return 401, {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret"}
        return 200, self._token(int)

    def _token(self, number: type) -> dict[str, Any]:
        token = f"eyJ.{len(self.requests)}"
        self.tokens.add(token)
        # The identity service writes numbers as texts.
        return {"access_token": token, "expires_in": number(3599), "token_type": "Bearer"}
