"""A web server that remembers what it was asked and answers as it is told."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class ReceivedRequest(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Answer(NamedTuple):
    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    #: says this length whatever the body has
    length: int | None = None


class RecordingServer:
    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.answer: Callable[[ReceivedRequest], Answer | None] = lambda _: Answer()
        #: lets requests that are answered None end
        self.release = threading.Event()
        #: set when such a request came
        self.stalled = threading.Event()
        self.endpoint = ""


@contextmanager
def recording_server(address: str = "127.0.0.1") -> Iterator[RecordingServer]:
    server = RecordingServer()

    class Requests(http.server.BaseHTTPRequestHandler):
        def serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = ReceivedRequest(self.command, self.path, headers, self.rfile.read(length))
            server.requests.append(request)
            answer = server.answer(request)
            if answer is None:
                server.stalled.set()
                server.release.wait(60)
                return
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body) if answer.length is None else answer.length))
            self.send_header("ETag", '"tag"')
            self.send_header("Last-Modified", "Tue, 15 Nov 1994 12:45:26 GMT")
            for name, value in answer.headers:
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = serve  # noqa: N815 - the base class finds them by name

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
            pass

    listening = http.server.ThreadingHTTPServer((address, 0), Requests)
    server.endpoint = f"http://{address}:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.release.set()
        listening.shutdown()
        listening.server_close()
        thread.join()
