"""The playbook language as JSON Schema, for editors and other programs, generated from the tables in `playbook.schema`.

The schema refuses every structure that `check` refuses, and accepts every one that `check` accepts. Rules that involve
several places (names that must exist, an else that must be last) are checked by `check` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arclog.model.config.kinds import KindSpec
from arclog.model.data.shapes import Field
from arclog.model.events import REGISTRY
from arclog.playbook.declarations import ADDRESS, NOTIFICATIONS, SCHEDULE_NAME
from arclog.playbook.declarations import KEYS as INPUT_KEYS
from arclog.playbook.declarations import TABLES as KEYCHAIN
from arclog.playbook.engine_kinds import ENGINE_KINDS
from arclog.playbook.files import FIELDS as FILE_FIELDS
from arclog.playbook.schema import (
    ACTION,
    ACTION_KEYS,
    ADMIT_THEN,
    INPUT,
    ITER_KEYS,
    NAME_LENGTH,
    ON_SUCCESS,
    POOL_NAME,
    RESERVED,
    TASK,
    TASK_POLICY,
    WORKBOOK_TASK,
    root_field,
    task_spec_fields,
)
from arclog.playbook.sugar import BRANCH, ROUNDS, SUGAR

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_JSON_TYPES = {"name": "string", "integer": "integer", "number": "number", "boolean": "boolean", "object": "object"}
#: A text that contains a template.
_TEMPLATE = r"\{[{%#]"
_TASKS = {"$ref": "#/$defs/tasks"}
#: Keys of ctx and iter that an author may set.
_OWN_KEY = {"pattern": "^[^_]"}


def json_schema(kinds: Mapping[str, KindSpec]) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a playbook with these kinds and the built-in ones."""
    all_kinds = {**ENGINE_KINDS, **kinds}
    schema = schema_of(root_field(all_kinds))
    root = schema["properties"]
    root["metadata"]["properties"]["name"]["pattern"] = r"\S"
    executor = root["executor"]["properties"]["spec"]["properties"]
    webhook = executor["webhooks"]["items"]["properties"]
    webhook["url"] |= {"pattern": "^https?://", "not": {"pattern": _TEMPLATE}}
    webhook["on"]["minItems"] = 1
    for key in NOTIFICATIONS:
        entry = executor[key]["items"]
        entry["oneOf"] = [{"required": ["webhook"]}, {"required": ["email"], "properties": {"secret": False}}]
        entry["properties"]["webhook"] |= {"pattern": "^https?://", "not": {"pattern": _TEMPLATE}}
        entry["properties"]["email"] |= {"minItems": 1, "pattern": ADDRESS}
        entry["properties"]["email"]["items"]["pattern"] = ADDRESS
    executor["schedules"]["items"]["properties"]["name"]["pattern"] = SCHEDULE_NAME
    executor["ctx"]["propertyNames"] = _name()
    executor["inputs"] |= {
        "additionalProperties": {"$ref": "#/$defs/input"},
        "propertyNames": {"pattern": r"^[A-Za-z_][A-Za-z0-9_]*$"},
    }
    workflow = root["workflow"]
    workflow["minItems"] = 1
    step = workflow["items"]["properties"]
    for spec in (executor, step["spec"]["properties"]):
        spec["pool"]["pattern"] = _whole(POOL_NAME.pattern)
        spec["policy"]["properties"]["emit"]["properties"]["events"]["items"]["enum"] = ["full", *REGISTRY]
    step["spec"]["properties"]["resources"]["items"]["pattern"] = _whole(POOL_NAME.pattern)
    step["spec"]["properties"]["policy"]["properties"]["admit"]["properties"]["rules"]["items"] = _rule(
        _closed(ADMIT_THEN)
    )
    step["tool"] = {"if": {"type": "array"}, "then": {**_TASKS, "minItems": 1}, "else": {"$ref": "#/$defs/task"}}
    loop = step["loop"]
    loop["properties"]["loop"] = {"$ref": "#/$defs/loop"}
    loop["properties"]["in"]["type"] = ["array", "string"]
    loop["properties"]["iterator"]["not"]["enum"] += sorted(ITER_KEYS)
    root["workbook"]["items"] = {
        "$ref": "#/$defs/task",
        "required": ["name"],
        "not": {"properties": {"kind": {"const": "workbook"}}},
    }
    root["keychain"]["items"] = _by_kind({kind: _closed(fields) for kind, fields in KEYCHAIN.items()}, ["name", "kind"])
    schema["$defs"] = {
        "loop": loop,
        "task": _by_kind(
            {**{name: _task(kind) for name, kind in sorted(all_kinds.items())}, "workbook": _workbook_task()}, ["kind"]
        ),
        "tasks": {"type": "array", "items": _task_or_block()},
        "rule": _rule(_action()),
        "input": _input(),
    }
    return {"$schema": DRAFT, "$id": "urn:arclog:playbook", "title": "arclog playbook", **schema}


def _by_kind(shapes: dict[str, dict[str, Any]], required: list[str]) -> dict[str, Any]:
    """Return the schema of a map whose `kind` determines its other keys."""
    return {
        "type": "object",
        "required": required,
        "properties": {"kind": {"enum": list(shapes)}},
        "allOf": [{"if": {"properties": {"kind": {"const": name}}}, "then": shape} for name, shape in shapes.items()],
    }


def _closed(fields: tuple[Field, ...]) -> dict[str, Any]:
    return schema_of(Field("", "object", fields=fields))


def _task(kind: KindSpec) -> dict[str, Any]:
    own = {field.name for field in kind.fields}
    common = [field for field in TASK if field.name != "spec" and field.name not in own]
    spec = Field("spec", "object", "Options of this task.", fields=(*task_spec_fields(kind), *ON_SUCCESS, TASK_POLICY))
    schema = schema_of(Field("task", "object", kind.summary, fields=(*common, spec, *kind.fields)))
    spec_keys = schema["properties"]["spec"]["properties"]
    for field in ON_SUCCESS:
        spec_keys[field.name]["propertyNames"] = _OWN_KEY
    spec_keys["policy"]["properties"]["rules"]["items"] = {"$ref": "#/$defs/rule"}
    if kind.from_file:
        _take_files(schema, kind)
    rules: list[dict[str, Any]] = [{"oneOf": [{"required": [key]} for key in group]} for group in kind.one_of]
    for variant in kind.variants:
        others = {key for other in kind.variants for key in (*other.needs, *other.takes)}
        foreign = sorted(others - {*variant.needs, *variant.takes})
        rules.append(
            {
                "if": {"properties": {kind.choice: {"const": variant.name}}, "required": [kind.choice]},
                "then": {"required": list(variant.needs), "properties": dict.fromkeys(foreign, False)},
            }
        )
    return {**schema, "allOf": rules} if rules else schema


def _take_files(schema: dict[str, Any], kind: KindSpec) -> None:
    """Allow `file` (or `module`, with a `function`) in place of a text."""
    keys = [field for field in FILE_FIELDS if field.name == "file" or kind.takes_modules]
    for field in keys:
        schema["properties"][field.name] = {**schema_of(field), "not": {"pattern": _TEMPLATE}}
    schema["required"] = [key for key in schema["required"] if key != kind.from_file]
    texts = [kind.from_file, "file", *(["module"] if kind.takes_modules else [])]
    schema["oneOf"] = [{"required": [key]} for key in texts]
    if kind.takes_modules:
        schema["dependentSchemas"] = {"function": {"anyOf": [{"required": ["file"]}, {"required": ["module"]}]}}


def _input() -> dict[str, Any]:
    schema = schema_of(INPUT)
    again = {"$ref": "#/$defs/input"}
    schema["properties"]["items"] = again
    schema["properties"]["properties"] |= {"additionalProperties": again}
    schema["allOf"] = [
        {
            "if": {"required": [key]},
            "then": {"properties": {"type": {"enum": list(kinds)}}},
        }
        for key, kinds in INPUT_KEYS.items()
    ] + [{"not": {"properties": {"required": {"const": True}}, "required": ["required", "default"]}}]
    return schema


def _workbook_task() -> dict[str, Any]:
    """Return the schema of a task from the workbook; the keys of its spec depend on the kind of the entry."""
    schema = _closed(WORKBOOK_TASK)
    policy = schema_of(TASK_POLICY)
    policy["properties"]["rules"]["items"] = {"$ref": "#/$defs/rule"}
    schema["properties"]["spec"]["properties"] = {"policy": policy}
    return schema


def _action() -> dict[str, Any]:
    schema = _closed(ACTION)
    for patch in ("set_iter", "set_ctx"):
        schema["properties"][patch]["propertyNames"] = _OWN_KEY
    is_ = {do: {"properties": {"do": {"const": do}}, "required": ["do"]} for do in set(ACTION_KEYS.values())}
    schema["allOf"] = [
        {"if": {"required": [key]}, "then": is_[owner]} for key, owner in ACTION_KEYS.items()
    ] + [{"if": is_["jump"], "then": {"required": ["to"]}}]  # fmt: skip
    return schema


def _rule(then: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of `{when, then}`, `{else: {then}}` or `{else: null, then}`."""

    def shape(**properties: Any) -> dict[str, Any]:
        return {
            "properties": properties,
            "required": list(properties),
            "patternProperties": {"^x-": {}},
            "additionalProperties": False,
        }

    inner = {"type": "object", **shape(then=then)}
    return {
        "type": "object",
        "if": {"required": ["else"]},
        "then": {"anyOf": [shape(**{"else": inner}), shape(**{"else": {"type": "null"}, "then": then})]},
        "else": shape(when={"type": ["string", "boolean"]}, then=then),
    }


def _task_or_block() -> dict[str, Any]:
    """Return the schema of an item of a task list: a task, or one of `choose`, `while` and `until` (without `kind`)."""
    rounds = _closed(ROUNDS)
    rounds["properties"]["do"] = _TASKS
    branch = _closed(BRANCH)
    branch["properties"]["then"] = _TASKS
    otherwise = {
        "properties": {
            "else": {"anyOf": [_TASKS, {"type": "null"}, {**_only("then"), "properties": {"then": _TASKS}}]},
            "then": _TASKS,
        },
        "patternProperties": {"^x-": {}},
        "additionalProperties": False,
    }
    ladder = {"type": "object", "if": {"required": ["else"]}, "then": otherwise, "else": branch}
    shapes = {"choose": {"type": "array", "items": ladder}, "while": rounds, "until": rounds}
    blocks = [
        {
            "properties": {word: shapes[word], "desc": {"type": "string"}},
            "required": [word],
            "patternProperties": {"^x-": {}},
            "additionalProperties": False,
        }
        for word in SUGAR
    ]
    is_block = {"anyOf": [{"required": [word]} for word in SUGAR], "not": {"required": ["kind"]}}
    return {"type": "object", "if": is_block, "then": {"anyOf": blocks}, "else": {"$ref": "#/$defs/task"}}


def _only(key: str) -> dict[str, Any]:
    return {"type": "object", "required": [key], "additionalProperties": False}


def _name() -> dict[str, Any]:
    return {
        "pattern": "^[A-Za-z][A-Za-z0-9_]*$",
        "maxLength": NAME_LENGTH,
        "not": {"enum": sorted(RESERVED)},
    }


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"


def schema_of(field: Field) -> dict[str, Any]:
    """Return the JSON Schema of one field."""
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
        # A value of another type is a template.
        names.append("string")
        schema["pattern"] = _TEMPLATE
    if names:
        schema["type"] = names[0] if len(names) == 1 else names
    if "name" in field.types:
        schema |= _name()
    if field.choices:
        choices: dict[str, Any] = {"enum": list(field.choices)}
        if field.template:
            choices = {"anyOf": [choices, {"pattern": _TEMPLATE}]}
        schema |= choices if names == ["string"] else {"if": {"type": "string"}, "then": choices}
    if field.plain:
        schema["not"] = {"type": "string", "pattern": _TEMPLATE}
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
