"""Pages for a browser: the API's reference, and what is at the root when the console is not built."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from arclog import __version__
from arclog.server.auth.access import public
from arclog.server.pages.reference import reference_page, security_policy, welcome_page

router = APIRouter(include_in_schema=False)

#: The documentation of the API: what it says is not a secret.
DOCS, DOCUMENT = "/api/docs", "/api/openapi.json"
#: For examples. Not what the request says: its Host header is anybody's.
_ADDRESS = "http://127.0.0.1:{port}"


@router.get("/", dependencies=[public()])
async def root(request: Request) -> Response:
    """A page that says what this is, and where its API is described."""
    return _page(welcome_page(__version__, DOCS, DOCUMENT, _address(request)))


@router.get(DOCS, dependencies=[public()])
async def docs(request: Request) -> Response:
    """The reference of the API; made once."""
    app = request.app
    if not hasattr(app.state, "reference"):
        app.state.reference = reference_page(app.openapi(), DOCUMENT, _address(request))
    return _page(app.state.reference)


def _address(request: Request) -> str:
    """The server's own, as whoever is on this machine names it."""
    server = request.scope.get("server") or ("", 8420)
    return _ADDRESS.format(port=server[1])


def _page(text: str) -> Response:
    return HTMLResponse(text, headers={"Content-Security-Policy": security_policy()})
