"""Writes `src/api/types.ts` from the OpenAPI document of the server; with `--check` it only says whether that is up to date.

Fields that have a default are always sent by the server, so they are optional in bodies alone. A type that occurs in answers
and in bodies is written twice: as `Name` and as `NameBody`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TYPES = Path(__file__).resolve().parent / "src" / "api" / "types.ts"
_REF = "#/components/schemas/"
_JSON = "application/json"
_HEAD = "// Made by `./x ui types` from the server's OpenAPI document; do not edit.\n"
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def typescript(document: dict[str, Any]) -> str:
    """All schemas as interfaces, and all routes as one."""
    # The console does not use the operations of workers.
    document["paths"] = {
        path: operation for path, operation in document["paths"].items() if not path.startswith("/api/worker/")
    }
    schemas: dict[str, Any] = document["components"]["schemas"]
    answers, bodies = _used(document, schemas)
    schemas = {name: schema for name, schema in schemas.items() if name in answers | bodies}
    twice = answers & bodies
    parts = [_HEAD]
    for name, schema in sorted(schemas.items()):
        if name in answers:
            parts.append(_named(name, schema, body=False, twice=twice))
        if name in bodies:
            parts.append(_named(f"{name}Body" if name in twice else name, schema, body=True, twice=twice))
    parts.append("export interface Routes {\n" + "".join(_routes(document, twice)) + "}\n")
    return "\n".join(parts)


def _used(document: dict[str, Any], schemas: dict[str, Any]) -> tuple[set[str], set[str]]:
    """The schemas that answers need, and those that bodies need."""
    answers: set[str] = set()
    bodies: set[str] = set()
    for operations in document["paths"].values():
        for operation in operations.values():
            _reach(operation["responses"], schemas, answers)
            _reach(operation.get("requestBody", {}), schemas, bodies)
    return answers, bodies


def _reach(found: Any, schemas: dict[str, Any], into: set[str]) -> None:
    if isinstance(found, dict):
        ref = found.get("$ref")
        if isinstance(ref, str) and ref.startswith(_REF) and (name := ref.removeprefix(_REF)) not in into:
            into.add(name)
            _reach(schemas[name], schemas, into)
        for value in found.values():
            _reach(value, schemas, into)
    elif isinstance(found, list):
        for value in found:
            _reach(value, schemas, into)


def _named(name: str, schema: dict[str, Any], *, body: bool, twice: set[str]) -> str:
    said = f"/** {_comment(schema['description'])} */\n" if schema.get("description") else ""
    if schema.get("type") != "object" or "properties" not in schema:
        return f"{said}export type {name} = {_type(schema, body=body, twice=twice)};\n"
    required = schema.get("required", [])
    fields = [
        f"  {_key(key)}{'?' if body and key not in required else ''}: {_type(value, body=body, twice=twice)};\n"
        for key, value in schema["properties"].items()
    ]
    return f"{said}export interface {name} {{\n{''.join(fields)}}}\n"


def _type(schema: dict[str, Any], *, body: bool, twice: set[str]) -> str:
    def inner(part: dict[str, Any]) -> str:
        return _type(part, body=body, twice=twice)

    if "$ref" in schema:
        name: str = schema["$ref"].removeprefix(_REF)
        return f"{name}Body" if body and name in twice else name
    if "enum" in schema:
        return " | ".join(_literal(value) for value in schema["enum"])
    if "anyOf" in schema or "oneOf" in schema:
        return " | ".join(dict.fromkeys(map(inner, schema.get("anyOf") or schema["oneOf"])))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(inner({**schema, "type": name}) for name in kind)
    if kind == "array":
        prefix = schema.get("prefixItems")
        if prefix:
            return f"[{', '.join(map(inner, prefix))}]"
        of = inner(schema.get("items") or {})
        return f"({of})[]" if " " in of else f"{of}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {inner(values) if isinstance(values, dict) else 'unknown'}>"
    return _PLAIN.get(str(kind), "unknown")


def _routes(document: dict[str, Any], twice: set[str]) -> Iterator[str]:
    for path, operations in sorted(document["paths"].items()):
        for method, operation in sorted(operations.items()):
            asked = operation.get("parameters", [])
            content = operation.get("requestBody", {}).get("content", {})
            body = _type(content[_JSON]["schema"], body=True, twice=twice) if _JSON in content else "never"
            yield (
                f'  "{method.upper()} {path}": {{\n'
                f"    path: {_parameters(asked, 'path')};\n"
                f"    query: {_parameters(asked, 'query')};\n"
                f"    body: {body};\n"
                f"    answer: {_answer(operation, twice)};\n"
                "  };\n"
            )


def _parameters(asked: list[dict[str, Any]], where: str) -> str:
    fields = [
        f"{_key(given['name'])}{'' if given.get('required') else '?'}: {_type(given['schema'], body=True, twice=set())}"
        for given in asked
        if given["in"] == where
    ]
    return f"{{ {'; '.join(fields)} }}" if fields else "Record<string, never>"


def _answer(operation: dict[str, Any], twice: set[str]) -> str:
    for status, answer in sorted(operation["responses"].items()):
        if status.startswith("2"):
            content = answer.get("content", {})
            if _JSON in content:
                return _type(content[_JSON]["schema"], body=False, twice=twice)
            return "string" if content else "null"
    return "never"


def _key(name: str) -> str:
    return name if name.isidentifier() else f'"{name}"'


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else "null" if value is None else str(value).lower()


def _comment(text: str) -> str:
    return " ".join(text.split()).replace("*/", "* /")


def main(argv: list[str]) -> int:
    from arclog.server.pages.openapi import document_of_all

    made = typescript(document_of_all())
    if "--check" not in argv:
        TYPES.parent.mkdir(parents=True, exist_ok=True)
        TYPES.write_text(made, encoding="utf-8")
        return 0
    if not TYPES.exists() or TYPES.read_text(encoding="utf-8") != made:
        print("ui/src/api/types.ts does not match the server's OpenAPI document; run ./x ui types")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
