from __future__ import annotations

import json
import re
from pathlib import Path

from arclog.model.data.shapes import TYPES, Field
from arclog.playbook.json_schema import json_schema
from arclog.playbook.schema import ACTION, ADMIT_THEN, TASK, TASK_POLICY, root_field
from tests.unit.plan.kinds import KINDS


def fields(field: Field):
    yield field
    for inner in (*(field.fields or ()), *((field.items,) if field.items else ())):
        yield from fields(inner)


def test_the_tables_use_known_types_and_say_what_keys_mean():
    for field in fields(root_field(KINDS)):
        assert set(field.types) <= TYPES, field
        assert not (field.required and field.default is not None), field


def test_json_schema_is_plain_json_and_knows_the_language():
    schema = json.loads(json.dumps(json_schema(KINDS)))
    assert schema["required"] == ["metadata", "workflow"]
    step = schema["properties"]["workflow"]["items"]
    assert set(step["required"]) == {"step", "tool"}
    assert step["additionalProperties"] is False
    own = {"approval", "assert", "playbook", "wait", "workbook"}
    assert set(schema["$defs"]["task"]["properties"]["kind"]["enum"]) == {*KINDS, *own}
    http = next(
        row["then"] for row in schema["$defs"]["task"]["allOf"] if row["if"]["properties"]["kind"]["const"] == "http"
    )
    assert "url" in http["required"]
    assert http["properties"]["spec"]["properties"]["policy"]["required"] == ["rules"]


def test_the_reference_names_every_key():
    text = (Path(__file__).parents[3] / "docs/playbook.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([^`]+)`", text, re.MULTILINE))
    internal = {
        "playbook",
        "step",
        "arc",
        "event",
        "tag",
        "loop",
        "keychain entry",
        "workbook entry",
        "ctx entry",
        "part",
        "webhook",
        "notification",
        "schedule",
        "address",
        "end",
        "resource",
        "input",
    }
    names = {
        field.name for field in (*fields(root_field({})), *TASK, *(TASK_POLICY.fields or ()), *ACTION, *ADMIT_THEN)
    }
    assert names - internal <= rows, names - internal - rows
