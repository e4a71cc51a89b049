"""HTML pages: the API reference, made from the OpenAPI document, and a page at the root.

Everything is in the page itself, and its style and script are named by their hashes in the Content-Security-Policy:
they work offline, and no other script can run in them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

_METHODS = ("get", "post", "put", "patch", "delete")
_REF = "#/components/schemas/"
_LONG = 4000


class Shape(NamedTuple):
    """A type as it is shown: a name, a link if it has a section, and the text around it."""

    name: str
    link: str = ""
    before: str = ""
    after: str = ""


class Row(NamedTuple):
    """A parameter or a field."""

    name: str
    types: list[Shape]
    meaning: str
    required: bool = False
    place: str = ""


def reference_page(document: Mapping[str, Any], where: str, address: str) -> str:
    """The reference of an API. `where` is the document's own path, `address` that of the server, for the examples."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method in _METHODS:
            if method in operations:
                operation = _operation(method, path, operations[method])
                groups.setdefault(next(iter(operations[method].get("tags", ())), "other"), []).append(operation)
    return _page(
        "reference.html",
        groups=[{"name": name, "operations": members} for name, members in groups.items()],
        schemas=[
            {
                "name": name,
                "anchor": _anchor("type", name),
                "description": schema.get("description", ""),
                "fields": list(_fields(schema)),
            }
            for name, schema in sorted(document.get("components", {}).get("schemas", {}).items())
        ],
        version=document["info"]["version"],
        document=where,
        address=address,
    )


def welcome_page(version: str, docs: str, document: str, address: str) -> str:
    """The page at the server's address."""
    return _page("welcome.html", version=version, docs=docs, document=document, address=address)


@cache
def security_policy() -> str:
    """The Content-Security-Policy of both pages: their own style and script, and nothing else."""
    style, script = (_hash(_text(name)) for name in ("style.css", "search.js"))
    return (
        f"default-src 'none'; style-src {style}; script-src {script}; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(name: str) -> str:
    return (files("arclog.server.pages") / name).read_text(encoding="utf-8")


def _page(template: str, **values: Any) -> str:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, loader=FunctionLoader(_text), undefined=StrictUndefined)
    own = {name: Markup(_text(file)) for name, file in (("style", "style.css"), ("script", "search.js"))}  # noqa: S704 - our own files
    return environment.get_template(template).render(**own, **values)


# -- operations --------------------------------------------------------------------------------------------------------


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    answers, errors = [], []
    for status, answer in sorted(operation.get("responses", {}).items()):
        content: Mapping[str, Any] = next(iter(answer.get("content", {}).values()), {})
        if int(status) >= 400:
            errors.append({"status": status, "description": answer["description"]})
        else:
            shapes = _shapes(content["schema"]) if "schema" in content else []
            example = _example(content.get("example"))
            answers.append(
                {"status": status, "description": answer["description"], "types": shapes, "example": example}
            )
    bodies = [
        {"media": media, "types": _shapes(content.get("schema", {})), "example": content.get("example")}
        for media, content in operation.get("requestBody", {}).get("content", {}).items()
    ]
    parameters = [
        Row(
            parameter["name"],
            _shapes(parameter["schema"]),
            _meaning(parameter),
            parameter.get("required", False),
            parameter["in"],
        )
        for parameter in operation.get("parameters", [])
    ]
    description = operation.get("description") or operation.get("summary", "")
    return {
        "method": method,
        "path": path,
        "anchor": _anchor(method, path),
        "description": description,
        "words": f"{method} {path} {description} {' '.join(operation.get('tags', ()))}".lower(),
        "parameters": parameters,
        "bodies": bodies,
        "answers": answers,
        "errors": errors,
        "curl": _curl(method, path, operation, bodies),
    }


def _curl(method: str, path: str, operation: Mapping[str, Any], bodies: list[dict[str, Any]]) -> str:
    """The operation as a command; values in angle brackets are to be filled in."""
    needed = [
        parameter["name"]
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query" and parameter.get("required")
    ]
    query = "?" + "&".join(f"{name}=<{name}>" for name in needed) if needed else ""
    filled = re.sub(r"{([^}]+)}", r"<\1>", path)
    words = [f'curl "$ARCLOG_SERVER{filled}{query}"']
    if method not in ("get", "post") or (method == "post" and not bodies):
        words.insert(1, f"-X {method.upper()}")
    words.append('-H "Authorization: Bearer $ARCLOG_TOKEN"')
    if bodies:
        media, example = bodies[0]["media"], bodies[0]["example"]
        words.append(f"-H 'Content-Type: {media}'")
        if example is None:
            words.append("--data-binary @FILE")
        else:
            text = example if isinstance(example, str) else json.dumps(example, ensure_ascii=False)
            quoted = text.replace("'", "'\\''")
            words.append(f"-d '{quoted}'")
    return " \\\n  ".join(words)


def _example(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return text if len(text) <= _LONG else f"{text[:_LONG]}\n…"


# -- types -------------------------------------------------------------------------------------------------------------


def _fields(schema: Mapping[str, Any]) -> Iterator[Row]:
    needed = set(schema.get("required", ()))
    for name, part in schema.get("properties", {}).items():
        yield Row(name, _shapes(part), _meaning(part), name in needed)


def _shapes(schema: Mapping[str, Any] | bool) -> list[Shape]:
    """The types that a value may have."""
    if isinstance(schema, bool):
        return [Shape("any")]
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return [Shape(name, _anchor("type", name))]
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return [shape for part in schema[several] for shape in _shapes(part)]
    if "enum" in schema:
        return [Shape(" | ".join(json.dumps(part) for part in schema["enum"]))]
    kind = schema.get("type", "any")
    if kind == "array":
        if "prefixItems" in schema:
            return [Shape(f"[{', '.join(shape.name for part in schema['prefixItems'] for shape in _shapes(part))}]")]
        return [_around("list of ", shape) for shape in _shapes(schema.get("items", {}))]
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return [_around("map of ", shape) for shape in _shapes(schema["additionalProperties"])]
    return [Shape(" or ".join(kind) if isinstance(kind, list) else str(kind))]


def _around(before: str, shape: Shape) -> Shape:
    if not shape.link:
        return Shape(f"{before}{shape.name}")
    return shape._replace(before=f"{before}{shape.before}")


def _meaning(described: Mapping[str, Any]) -> str:
    """The description and the default."""
    schema = described.get("schema", described)
    parts = [str(described.get("description", "")).rstrip(".")]
    if schema.get("default") not in (None, "", [], {}):
        parts.append(f"default {json.dumps(schema['default'])}")
    for key, word in (("minimum", "at least"), ("maximum", "at most"), ("maxLength", "characters at most")):
        if key in schema:
            parts.append(f"{word} {schema[key]}")
    return "; ".join(filter(None, parts))


def _anchor(*parts: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(parts)).strip("-").lower()
