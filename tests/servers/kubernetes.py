"""The real Helm against an API server that takes everything and remembers it.

Helm's own library renders, validates the values by their schema and sends what it made; only Kubernetes is played: it
knows the kinds that it is told of, has nothing, and says yes.
"""

from __future__ import annotations

import ctypes
import json
import platform
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

#: group and version → its kinds (all of them in namespaces)
KINDS = {
    "v1": ["Service", "ServiceAccount", "Secret", "ConfigMap", "Pod"],
    "apps/v1": ["Deployment"],
    "policy/v1": ["PodDisruptionBudget"],
    "autoscaling/v2": ["HorizontalPodAutoscaler"],
    "networking.k8s.io/v1": ["Ingress", "NetworkPolicy"],
    "monitoring.coreos.com/v1": ["ServiceMonitor", "PrometheusRule"],
    "keda.sh/v1alpha1": ["ScaledObject"],
}
_PLURALS = {"Ingress": "ingresses", "NetworkPolicy": "networkpolicies"}
_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: played, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
contexts: [{{name: played, context: {{cluster: played, user: nobody}}}}]
users: [{{name: nobody, user: {{}}}}]
current-context: played
"""


class HelmRefused(Exception):
    """Helm's own words."""


class Helm:
    """Helm and its cluster; `with Helm() as helm: …`."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(_library()))
        self._library.helm_sdkpy_last_error.restype = ctypes.c_char_p
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
        self._created: list[dict[str, Any]] = []
        self._server.created = self._created  # type: ignore[attr-defined]  # the handler finds it by its server
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._handle = ctypes.c_ulonglong()

    def __enter__(self) -> Self:
        self._thread.start()
        config = _KUBECONFIG.format(port=self._server.server_port).encode()
        self._checked(
            self._library.helm_sdkpy_config_create(b"somewhere", config, b"", b"{}", ctypes.byref(self._handle))
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self._library.helm_sdkpy_config_destroy(self._handle)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def lint(self, chart: Path) -> list[dict[str, Any]]:
        """What `helm lint` says; refuses a chart with an error."""
        answer = ctypes.c_char_p()
        self._checked(self._library.helm_sdkpy_lint(self._handle, str(chart).encode(), ctypes.byref(answer)))
        body = json.loads(answer.value or b"{}")
        assert not body["Errors"], body
        return list(body["Messages"] or [])

    def install(self, chart: Path, values: dict[str, Any] | None = None, release: str = "rel") -> list[dict[str, Any]]:
        """Every object that the chart makes of these values, as the cluster was sent it."""
        self._created.clear()
        answer = ctypes.c_char_p()
        options = {"wait": False, "disable_openapi_validation": True, "server_side_apply": "false"}
        self._checked(
            self._library.helm_sdkpy_install(
                self._handle,
                release.encode(),
                str(chart).encode(),
                json.dumps(values or {}).encode(),
                b"",
                json.dumps(options).encode(),
                ctypes.byref(answer),
            )
        )
        return list(self._created)

    def _checked(self, code: int) -> None:
        if code:
            raise HelmRefused((self._library.helm_sdkpy_last_error() or b"").decode())


class _Api(BaseHTTPRequestHandler):
    """Discovery, nothing to be found, and a yes to everything."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        group_version = path.removeprefix("/apis/").removeprefix("/api/").strip("/")
        if path == "/version":
            self._answer(200, {"major": "1", "minor": "33", "gitVersion": "v1.33.0"})
        elif path == "/api":
            self._answer(200, {"kind": "APIVersions", "versions": ["v1"]})
        elif path == "/apis":
            self._answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups()})
        elif group_version in KINDS:
            resources = [_resource(kind) for kind in KINDS[group_version]]
            self._answer(200, {"kind": "APIResourceList", "groupVersion": group_version, "resources": resources})
        else:
            self._answer(
                404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if body.startswith(b"k8s\x00"):  # Helm's own record of the release
            self._answer(201, {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "release"}})
            return
        document = json.loads(body)
        self.server.created.append(document)  # type: ignore[attr-defined]  # set by Helm above
        self._answer(201, document)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self._answer(200, {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "release"}})

    def _answer(self, status: int, value: Any) -> None:
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *words: Any) -> None:
        """Nobody reads it."""


def _groups() -> list[dict[str, Any]]:
    groups = []
    for group_version in KINDS:
        group, _, version = group_version.rpartition("/")
        if group:
            named = {"groupVersion": group_version, "version": version}
            groups.append({"name": group, "versions": [named], "preferredVersion": named})
    return groups


def _resource(kind: str) -> dict[str, Any]:
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    return {"name": plural, "kind": kind, "namespaced": True, "verbs": ["get", "list", "create"]}


def _library() -> Path:
    """Where ./x puts it: beside the environment, since the package's own Python code is not for ours."""
    built_for = sorted((Path(sys.prefix) / "helm/helm_sdkpy/_lib").glob("*/libhelm_sdkpy.so"))
    assert built_for, f"{sys.prefix}/helm has no Helm; ./x check installs what tests need"
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    own = f"{platform.system().lower()}-{machine}"
    for path in built_for:
        if path.parent.name == own:
            return path
    pytest.skip(f"the package has Helm for {', '.join(path.parent.name for path in built_for)} alone, this is {own}")
