"""A server that speaks S3 (moto's), in a process of its own that ends with the test process."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

# The process dies with its parent whatever happens to that; port 0 is any free one, and is said on stdout.
_SERVE = """
import ctypes, logging, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
logging.disable(logging.CRITICAL)
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
app = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, app, threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


class S3Server:
    """A running server."""

    def __init__(self, endpoint: str, process: subprocess.Popen[str]) -> None:
        self.endpoint = endpoint
        self._process = process

    def stop(self) -> None:
        """End it at once, with everything that it kept."""
        self._process.kill()
        self._process.wait()

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """A plain request, which the server takes without a signature."""
        request = urllib.request.Request(self.endpoint + path, method=method, data=body)
        if body is not None:  # else it would be taken for a form
            request.add_header("Content-Type", "application/octet-stream")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as answer:
            content: bytes = answer.read()
            return content

    def bucket(self, name: str) -> str:
        self.request("PUT", f"/{name}")
        return name

    def uploads(self, bucket: str) -> int:
        """Multipart uploads that neither ended nor were aborted."""
        return self.request("GET", f"/{bucket}?uploads").count(b"<Upload>")

    def forget(self) -> None:
        self.request("POST", "/moto-api/reset")


@contextmanager
def s3_server() -> Iterator[S3Server]:
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        assert port.isdigit(), "the S3 server did not start"
        yield S3Server(f"http://127.0.0.1:{port}", process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
