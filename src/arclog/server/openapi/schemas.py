"""What the OpenAPI document says of a route: schemas from the same msgspec types that are decoded and encoded.

A route takes `**documented(...)`; the types it names become components of the document, with an example each.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from msgspec import Struct
from starlette.responses import Response

from arclog.server.problems import MEDIA_TYPE

JSON = "application/json"
_REF = "#/components/schemas/{name}"

#: What the routes' types came to; filled as routers are imported.
_COMPONENTS: dict[str, Any] = {}


class ProblemDetails(Struct, frozen=True):
    """Every error (RFC 9457)."""

    type: str
    #: the kind of error
    title: str
    status: int
    #: what, where, and what to do
    detail: str


_TITLES = {
    400: "The request cannot be read.",
    401: "Missing or invalid credentials.",
    403: "The caller's roles do not allow it.",
    404: "Not found, or not visible to the caller.",
    405: "The route does not support this method.",
    408: "The body was not received within server.body_timeout_s.",
    409: "Conflicts with the current state.",
    410: "Removed.",
    413: "The body is larger than server.max_body_bytes.",
    416: "The range is outside the content.",
    422: "The request is invalid.",
    429: "Too many requests; Retry-After says when to try again.",
    503: "The server cannot answer now; Retry-After says when to try again.",
}


def documented(
    *,
    answer: Any = None,
    example: Any = None,
    status: int = 200,
    text: str = "Success.",
    media: str = JSON,
    takes: Any = None,
    takes_example: Any = None,
    takes_media: str = JSON,
    takes_text: tuple[str, str] | None = None,
    also: dict[int, str] | None = None,
    errors: tuple[int, ...] = (404,),
) -> dict[str, Any]:
    """What FastAPI is told: the answer (a type, with an example), the body (and a text that may be sent instead: media
    type, example), other good answers by status, and errors.
    """
    good: dict[str, Any] = {"description": text}
    if answer is not None or example is not None:
        good["content"] = {media: _content(answer, example)}
    responses: dict[int | str, Any] = {status: good}
    for other, said in (also or {}).items():
        responses[other] = {"description": said} if other == 204 else {**good, "description": said}
    _schema(ProblemDetails)
    all_errors = {400, 401, 403, 405, 422, 429, 503, *errors} | ({408, 413} if takes is not None else set())
    for code in sorted(all_errors):
        problem = {
            "type": "about:blank",
            "title": _TITLES[code].split(".")[0],
            "status": code,
            "detail": _TITLES[code],
        }
        responses[code] = {"description": _TITLES[code], "content": {MEDIA_TYPE: _content(ProblemDetails, problem)}}
    told: dict[str, Any] = {"responses": responses, "status_code": status, "response_model": None}
    if media != JSON:
        told["response_class"] = Response  # else FastAPI documents JSON beside it
    if takes is not None:
        content = {takes_media: _content(takes, takes_example)}
        if takes_text is not None:
            content[takes_text[0]] = _content(None, takes_text[1])
        told["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    return told


def _content(kind: Any, example: Any) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": _schema(kind) if kind is not None else {"type": "string"}}
    if example is not None:
        content["example"] = msgspec.to_builtins(example)
    return content


def _schema(kind: Any) -> dict[str, Any]:
    """Of a type, of a schema itself, or of several of them."""
    if isinstance(kind, tuple):
        return {"anyOf": [_schema(one) for one in kind]}
    if isinstance(kind, dict):
        return kind
    (schema,), components = msgspec.json.schema_components([kind], ref_template=_REF)
    _COMPONENTS.update(components)
    return schema


def install(app: FastAPI) -> None:
    """Publish the components of all routes with the document."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = plain()
            known = document.setdefault("components", {}).setdefault("schemas", {})
            known.update(_COMPONENTS)
            # FastAPI's own shape of a 422 is never sent: problems are.
            known.pop("HTTPValidationError", None)
            known.pop("ValidationError", None)
            app.openapi_schema = document
        return app.openapi_schema

    # The documented way to extend the document: FastAPI calls app.openapi() wherever it is served.
    app.openapi = openapi  # type: ignore[method-assign]
