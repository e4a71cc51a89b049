"""The OpenAPI document, from the table of operations: schemas of the same msgspec types that are decoded and encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from arclog import __version__
from arclog.operations.operation import YAML, NoParams, Operation
from arclog.operations.table import OPERATIONS
from arclog.server.problems import MEDIA_TYPE

_REF = "#/components/schemas/{name}"


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
    429: "Too many requests; retry after the time in Retry-After.",
    503: "The server is temporarily unavailable; retry after the time in Retry-After.",
}
_ALWAYS = (400, 401, 403, 405, 422, 429, 503)
_OF_BODIES = (408, 413)


@cache
def document_of_all() -> dict[str, Any]:
    """The document of this server's API."""
    return document(OPERATIONS)


@cache
def document_bytes() -> bytes:
    return msgspec.json.encode(document_of_all())


def document(operations: Iterable[Operation[Any]]) -> dict[str, Any]:
    """The document of some operations."""
    writer = _Writer()
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        if operation.tag:
            paths.setdefault(operation.path, {})[operation.method.lower()] = writer.operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "arclog", "version": __version__},
        "paths": paths,
        "components": {"schemas": writer.components},
    }


class _Writer:
    def __init__(self) -> None:
        self.components: dict[str, Any] = {}

    def operation(self, operation: Operation[Any]) -> dict[str, Any]:
        described: dict[str, Any] = {
            "tags": [operation.tag],
            "summary": operation.name.rpartition(".")[2].replace("_", " ").title(),
            "description": operation.text,
            "operationId": operation.operation_id,
        }
        if operation.params is not NoParams:
            described["parameters"] = self._parameters(operation)
        if operation.takes is not None:
            schema = operation.takes_schema or operation.takes
            content = {operation.takes_media: self._content(schema, operation.takes_example)}
            if operation.yaml_field:
                content[YAML] = self._content(None, operation.yaml_example)
            described["requestBody"] = {"required": True, "content": content}
        described["responses"] = self._responses(operation)
        return described

    def _parameters(self, operation: Operation[Any]) -> list[dict[str, Any]]:
        (_,), components = msgspec.json.schema_components([operation.params])
        struct = components[operation.params.__name__]
        parameters = []
        for name, schema in struct.get("properties", {}).items():
            place = "path" if name in operation.path_names else "query"
            shown = {**schema, "title": name.replace("_", " ").title()}
            if shown.get("default", "") is None:
                del shown["default"]
            parameter = {"name": name, "in": place, "required": name in struct.get("required", ()), "schema": shown}
            if "description" in schema:
                parameter["description"] = schema["description"]
            parameters.append(parameter)
        return parameters

    def _responses(self, operation: Operation[Any]) -> dict[str, Any]:
        good: dict[str, Any] = {"description": operation.outcome}
        schema = operation.schema or operation.answer
        if schema is not None or operation.example is not None:
            good["content"] = {operation.media: self._content(schema, operation.example)}
        responses = {str(operation.status): good}
        for status, meaning in operation.also.items():
            responses[str(status)] = {"description": meaning} if status == 204 else {**good, "description": meaning}
        of_bodies = _OF_BODIES if operation.takes is not None else ()
        for status in sorted({*_ALWAYS, *operation.errors, *of_bodies}):
            text = _TITLES[status]
            example = {"type": "about:blank", "title": text.split(".")[0], "status": status, "detail": text}
            responses[str(status)] = {
                "description": text,
                "content": {MEDIA_TYPE: self._content(ProblemDetails, example)},
            }
        return responses

    def _content(self, kind: Any, example: Any) -> dict[str, Any]:
        content: dict[str, Any] = {"schema": self._schema(kind) if kind is not None else {"type": "string"}}
        if example is not None:
            content["example"] = msgspec.to_builtins(example)
        return content

    def _schema(self, kind: Any) -> dict[str, Any]:
        """The schema of a type, of a schema or its factory, or of several of them."""
        if isinstance(kind, tuple):
            return {"anyOf": [self._schema(member) for member in kind]}
        if isinstance(kind, dict):
            return kind
        if isinstance(kind, Callable) and not isinstance(kind, type):  # type: ignore[arg-type]  # an ABC
            made: dict[str, Any] = kind()
            return made
        (schema,), components = msgspec.json.schema_components([kind], ref_template=_REF)
        self.components.update(components)
        return schema
