"""The language as JSON Schema, for editors and other programs; drawn from the tables in `playbook.schema`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arclog.model.kinds import KindSpec
from arclog.model.shapes import Field
from arclog.playbook.keychain import TABLES as KEYCHAIN
from arclog.playbook.schema import NAME_LENGTH, TASK, TASK_POLICY, root_field, task_spec_fields

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_JSON_TYPES = {"name": "string", "integer": "integer", "number": "number", "boolean": "boolean", "object": "object"}


def json_schema(kinds: Mapping[str, KindSpec]) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a playbook with these kinds."""
    schema = schema_of(root_field(kinds))
    step = schema["properties"]["workflow"]["items"]
    task = {"$ref": "#/$defs/task"}
    step["properties"]["tool"] = {
        "oneOf": [task, {"type": "array", "items": {"anyOf": [task, {"$ref": "#/$defs/sugar"}]}}]
    }
    step["properties"]["loop"]["properties"]["loop"] = {"$ref": "#/$defs/loop"}
    schema["properties"]["workbook"]["items"] = task
    schema["properties"]["keychain"]["items"] = {
        "type": "object",
        "required": ["name", "kind"],
        "properties": {"kind": {"enum": list(KEYCHAIN)}},
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}},
                "then": schema_of(Field("entry", "object", fields=fields)),
            }
            for kind, fields in KEYCHAIN.items()
        ],
    }
    tasks = {"type": "array", "items": {"anyOf": [task, {"$ref": "#/$defs/sugar"}]}}
    rounds = {"when": {"type": ["string", "boolean"]}, "do": tasks, "max": {"type": "integer", "minimum": 1}}
    branch = {"type": "object", "properties": {"when": {"type": ["string", "boolean"]}, "then": tasks, "else": tasks}}
    schema["$defs"] = {
        "loop": step["properties"]["loop"],
        "task": {
            "type": "object",
            "required": ["kind"],
            "properties": {"kind": {"enum": sorted(kinds)}},
            "allOf": [
                {"if": {"properties": {"kind": {"const": name}}}, "then": schema_of(_task_field(kind))}
                for name, kind in sorted(kinds.items())
            ],
        },
        "sugar": {
            "type": "object",
            "maxProperties": 1,
            "properties": {
                "choose": {"type": "array", "items": branch},
                "while": {"type": "object", "required": ["when", "do"], "properties": rounds},
                "until": {"type": "object", "required": ["when", "do"], "properties": rounds},
            },
        },
    }
    return {"$schema": DRAFT, "title": "arclog playbook", **schema}


def _task_field(kind: KindSpec) -> Field:
    common = [field for field in TASK if field.name != "spec"]
    spec = Field("spec", "object", "Behaviour knobs of this task.", fields=(*task_spec_fields(kind), TASK_POLICY))
    return Field("task", "object", kind.summary, fields=(*common, spec, *kind.fields))


def schema_of(field: Field) -> dict[str, Any]:
    """JSON Schema of one field."""
    schema: dict[str, Any] = {}
    if field.doc:
        schema["description"] = field.doc
    names: list[str] = []
    for word in field.types:
        if word == "any":
            names = []
            break
        names += (
            ["string", "boolean"]
            if word == "condition"
            else ["array"]
            if word == "list"
            else [_JSON_TYPES.get(word, word)]
        )
    if field.template and names and "string" not in names:
        names.append("string")
    if names:
        schema["type"] = names[0] if len(names) == 1 else names
    if "name" in field.types:
        schema["pattern"] = "^[A-Za-z][A-Za-z0-9_]*$"
        schema["maxLength"] = NAME_LENGTH
    if field.choices and "object" not in field.types and not field.template:
        schema["enum"] = list(field.choices)
    if field.default is not None:
        schema["default"] = field.default
    bounds = {"minimum": field.minimum, "exclusiveMinimum": field.exclusive_min, "maximum": field.maximum}
    schema.update({key: bound for key, bound in bounds.items() if bound is not None})
    if field.fields is not None:
        schema["properties"] = {inner.name: schema_of(inner) for inner in field.fields}
        schema["patternProperties"] = {"^x-": {}}
        schema["additionalProperties"] = False
        required = [inner.name for inner in field.fields if inner.required]
        if required:
            schema["required"] = required
    if field.items is not None:
        schema["items" if "list" in field.types else "additionalProperties"] = schema_of(field.items)
    return schema
