"""The console's files: everything that does not belong to the API.

Plain ASGI. Only files that existed when the server started are served, by their exact names. Files under /assets/ have
a hash in their names and never change; the page itself is revalidated each time. A browser that requests any other path
gets the console's page, which routes by the address. Other requests go to the API, which answers unknown ones with a
404. Without the console's files, all requests go to the API: / is then a page of `server.handlers.server`.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from arclog.model.errors import NotAllowed
from arclog.server.headers import respond
from arclog.server.problems import problem

#: The folder of the built console; package data.
STATIC = Path(__file__).parent / "static"
#: No inline scripts or styles, no eval, nothing from other origins.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Frame-Options": "DENY",
}
#: A header that shows the page that it needs no session. Scripts can read it, unlike most other headers of the page.
_OPEN = "open"
_PAGE = "/index.html"
_HASHED = "/assets/"
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"
#: Paths of the API: never pages.
_API = ("/api/", "/health", "/ready", "/metrics")
_PACKED = {"br": ".br", "gzip": ".gz"}
_TYPES = {".js": "text/javascript", ".svg": "image/svg+xml", ".webmanifest": "application/manifest+json"}


def is_built() -> bool:
    """Return whether this package includes the console."""
    return (STATIC / _PAGE.strip("/")).is_file()


class File(Struct, frozen=True):
    """A file in memory, with its compressed forms."""

    body: bytes
    kind: str
    tag: str
    #: by content encoding
    packed: dict[str, bytes] = {}


class Console:
    """Serves the files of a folder next to an application."""

    def __init__(
        self, app: ASGIApp, folder: Path = STATIC, is_open: Callable[[Mapping[str, str]], Awaitable[bool]] | None = None
    ) -> None:
        """`is_open` is whether a request with these headers needs no session; it raises NotAllowed for one that is refused."""
        self._app = app
        self._is_open = is_open
        self._files = dict(_files(folder)) if (folder / _PAGE.strip("/")).is_file() else {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        answer = self._answer(scope) if scope["type"] == "http" else None
        return self._app(scope, receive, send) if answer is None else self._serve(answer, scope, receive, send)

    async def _serve(self, answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_open is not None:
            try:
                if await self._is_open(Headers(scope=scope)):
                    answer.headers["Server-Timing"] = _OPEN
            except NotAllowed as refusal:
                answer = problem(403, NotAllowed.__name__, str(refusal))
        await respond(answer, scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        """Returns None if the path belongs to the API."""
        path: str = scope["path"]
        if scope["method"] not in ("GET", "HEAD") or path == "/api" or path.startswith(_API):
            return None
        headers = Headers(scope=scope)
        file = self._files.get(path)
        if file is not None and path != _PAGE:
            return _served(file, headers, _FOR_EVER if path.startswith(_HASHED) else _ASK_AGAIN)
        if path.startswith(_HASHED) or not (path == "/" or "text/html" in headers.get("accept", "")):
            return None
        page = self._files.get(_PAGE)
        return None if page is None else _served(page, headers, _ASK_AGAIN)


def _served(file: File, headers: Headers, keep: str) -> Response:
    sent = {**_HEADERS, "Cache-Control": keep, "ETag": file.tag, "Vary": "Accept-Encoding"}
    if file.tag in headers.get("if-none-match", ""):
        return Response(status_code=304, headers=sent)
    accepted = headers.get("accept-encoding", "")
    for encoding, packed in file.packed.items():
        if encoding in accepted:
            return Response(packed, 200, {**sent, "Content-Encoding": encoding}, file.kind)
    return Response(file.body, 200, sent, file.kind)


def _files(folder: Path) -> Iterator[tuple[str, File]]:
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix in ("", *_PACKED.values()):
            continue
        body = path.read_bytes()
        packed = {
            encoding: other.read_bytes()
            for encoding, suffix in _PACKED.items()
            if (other := path.with_name(path.name + suffix)).is_file()
        }
        kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        yield f"/{path.relative_to(folder).as_posix()}", File(body, kind, tag, packed)
