"""The language server: its messages, and what it answers."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from arclog.authoring.lsp.features import Features, Place
from arclog.authoring.lsp.server import Server
from arclog.wiring.kinds import installed_kinds
from tests.security import bombs

TEXT = """\
metadata: {name: p}
keychain: [{name: api, kind: bearer}]
workload:
  ids: [1]
workflow:
  - step: start
    desc: Begins.
    loop: {in: "{{ workload.ids }}", iterator: row}
    tool:
      - name: fetch
        kind: http
        url: https://x.org
      - name: keep
        kind: noop
        data: "{{ fetch.data }}"
    next:
      arcs:
        - step: second
  - step: second
    tool:
      kind: noop
      data: "{{ start.data }}"
"""


def features_at(text: str) -> tuple[Features, Place]:
    """Features of a text, and the place of its `|`."""
    before = text[: text.index("|")]
    place = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
    return Features(text.replace("|", "", 1), "p.yaml", installed_kinds()), place


def words(text: str) -> set[str]:
    features, place = features_at(text)
    return {candidate.word for candidate in features.complete(place)}


@pytest.mark.parametrize(
    ("change", "some", "none"),
    [
        (("workload:\n", "wor|\nworkload:\n"), {"executor", "workbook"}, {"arcs", "metadata"}),
        (("    desc: Begins.\n", "    |\n"), {"args", "spec", "desc"}, {"arcs", "url", "tool"}),
        (("        url: https://x.org\n", "        |\n"), {"url", "headers", "spec"}, {"arcs", "kind"}),
        (("      arcs:\n        - step: second\n", "      |\n"), {"arcs", "spec"}, {"step", "tool"}),
        (("        - step: second\n", "        - |\n"), {"step", "when", "args"}, {"tool"}),
        (("        kind: http", "        kind: |"), {"http", "python", "wait"}, set()),
        (("        - step: second", "        - step: |"), {"start", "second"}, set()),
        (("{{ start.data }}", "{{ | }}"), {"workload", "ctx", "start"}, {"arcs"}),
        (("{{ start.data }}", "{{ workload.| }}"), {"ids"}, {"start"}),
        (("{{ start.data }}", "{{ iter.| }}"), {"row", "index"}, set()),
        (("{{ start.data }}", "{{ start.| }}"), {"data", "error"}, set()),
        (("{{ start.data }}", "{{ keychain.| }}"), {"api"}, set()),
        (("url: https://x.org", "auth: |"), {"api"}, set()),
        (("url: https://x.org", "url: ht|tps"), set(), {"headers"}),
    ],
)
def test_completion(change: tuple[str, str], some: set[str], none: set[str]) -> None:
    completions = words(TEXT.replace(change[0], change[1], 1))
    assert some <= completions
    assert not none & completions


def test_completion_works_while_the_text_is_broken() -> None:
    assert {"start"} <= words('workflow:\n  - step: start\n    tool: {kind: noop, data: "{{ | }\n')


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (("    loop:", "    lo|op:"), "Runs the tasks once for each item"),
        (("        kind: http", "        kind: ht|tp"), "**http**:"),
        (("        - step: second", "        - step: sec|ond"), "step **second**, line 19"),
        (("{{ start.data", "{{ st|art.data"), "step **start**, line 6: Begins."),
        (("name: p}", "name: |p}"), ""),
        (("name: p}", "na|me: p}"), "**name** (string)"),
        (("{{ start.data", "{{ ctx.x is def|ined and start.data"), "**defined**"),
        (("{{ start.data", "{{ leng|th ~ start.data"), ""),
    ],
)
def test_hover(change: tuple[str, str], part: str) -> None:
    features, place = features_at(TEXT.replace(change[0], change[1], 1))
    text = features.hover(place)
    assert part in text
    assert bool(text) is bool(part)


def test_filters_are_known() -> None:
    text = TEXT.replace("{{ start.data", "{{ workload.ids | length ~ start.data", 1)
    line = next(number for number, line in enumerate(text.split("\n"), 1) if "| length" in line)
    column = text.split("\n")[line - 1].index("length") + 2
    features = Features(text, "p.yaml", installed_kinds())
    assert "**length**: " in features.hover(Place(line, column))
    assert {"length", "abs"} <= {candidate.word for candidate in features.complete(Place(line, column))}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("        - step: second", "        - step: sec|ond"), 19),
        (("{{ start.data", "{{ sta|rt.data"), 6),
        (("{{ workload.ids", "{{ workload.i|ds"), 4),
        (("{{ fetch.data", "{{ fe|tch.data"), 10),
        (("https://x.org", "htt|ps://x.org"), None),
    ],
)
def test_definition(change: tuple[str, str], line: int | None) -> None:
    features, place = features_at(TEXT.replace(change[0], change[1], 1))
    target = features.definition(place)
    assert (None if target is None else target.line) == line


def talk(*messages: dict[str, Any] | bytes) -> tuple[int, list[dict[str, Any]]]:
    source = b""
    for message in messages:
        body = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        source += b"Content-Length: %d\r\n\r\n" % len(body) + body
    target = io.BytesIO()
    code = Server(io.BytesIO(source), target, installed_kinds()).run()
    answers: list[dict[str, Any]] = []
    unread = target.getvalue()
    while unread:
        head, _, unread = unread.partition(b"\r\n\r\n")
        length = int(head.split(b":")[1])
        answers.append(json.loads(unread[:length]))
        unread = unread[length:]
    return code, answers


def test_a_session() -> None:
    uri = "file:///p.yaml"
    broken = TEXT.replace("kind: noop", "kind: nop")
    document = {"textDocument": {"uri": uri}}
    code, answers = talk(
        {"id": 1, "method": "initialize", "params": {}},
        {"method": "initialized"},
        {"method": "textDocument/didOpen", "params": {"textDocument": {"uri": uri, "text": broken}}},
        {"method": "textDocument/didChange", "params": {**document, "contentChanges": [{"text": TEXT}]}},
        {
            "id": 2,
            "method": "textDocument/completion",
            "params": {**document, "position": {"line": 10, "character": 14}},
        },
        {"id": 3, "method": "textDocument/hover", "params": {**document, "position": {"line": 7, "character": 6}}},
        {
            "id": 4,
            "method": "textDocument/definition",
            "params": {**document, "position": {"line": 17, "character": 18}},
        },
        {"id": 5, "method": "textDocument/rename", "params": {}},
        {"id": 6, "method": "textDocument/hover", "params": {}},
        b"no json",
        {"method": "textDocument/didClose", "params": document},
        {"id": 7, "method": "shutdown"},
        {"method": "exit"},
    )
    assert code == 0
    by_id = {answer["id"]: answer for answer in answers if "id" in answer}
    published = [answer["params"]["diagnostics"] for answer in answers if "method" in answer]
    assert by_id[1]["result"]["capabilities"]["hoverProvider"] is True
    assert {finding["code"] for finding in published[0]} >= {"unknown-kind"}
    assert published[0][0]["range"]["start"]["line"] == 13
    assert published[1] == []
    assert published[-1] == []
    assert "http" in {item["label"] for item in by_id[2]["result"]}
    assert "Runs the tasks" in by_id[3]["result"]["contents"]["value"]
    assert by_id[4]["result"]["range"]["start"] == {"line": 18, "character": 10}
    assert by_id[5]["error"]["code"] == -32601
    assert by_id[6]["error"]["code"] == -32603
    assert by_id[7]["result"] is None


def test_an_editor_that_just_leaves() -> None:
    assert talk({"id": 1, "method": "initialize"})[0] == 1
    assert talk(b"")[0] == 1


def test_places_are_counted_in_units_of_utf_16() -> None:
    text = 'metadata: {name: p}\nworkflow:\n  - step: start\n    tool: {kind: noop, data: "😀 {{ nobody }} {{ start.data }}"}\n'
    uri = "file:///p.yaml"
    line = text.splitlines()[3]
    opened = {"textDocument": {"uri": uri, "languageId": "yaml", "version": 1, "text": text}}
    place = {"textDocument": {"uri": uri}, "position": {"line": 3, "character": line.index("start") + 1}}
    _, answers = talk(
        {"method": "textDocument/didOpen", "params": opened},
        {"id": 1, "method": "textDocument/definition", "params": place},
    )
    (diagnostic,) = answers[0]["params"]["diagnostics"]
    at = line.index("nobody") + 1  # one sign takes two units
    assert diagnostic["range"] == {
        "start": {"line": 3, "character": at},
        "end": {"line": 3, "character": at + len("nobody")},
    }
    assert answers[1]["result"]["range"]["start"] == {"line": 2, "character": 10}


def packed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


def message(method: str, number: int | None = None, **params: Any) -> bytes:
    return packed(
        json.dumps({"method": method, **({} if number is None else {"id": number}), "params": params}).encode()
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("bomb", [bombs.aliases(), bombs.nested(2000), bombs.many_steps(2000)])
def test_a_file_of_somebody_else_does_not_stop_it(bomb: str) -> None:
    """Opened, and looked at in a place that no key names: aliases of aliases stand for 10¹² values."""
    at = {"textDocument": {"uri": "file:///p.yaml"}, "position": {"line": 2, "character": 9}}
    source = [
        message("textDocument/didOpen", textDocument={"uri": "file:///p.yaml", "text": bomb}),
        *(message(f"textDocument/{method}", number, **at) for number, method in enumerate(("hover", "completion"))),
        message("shutdown", 2),
        message("exit"),
    ]
    target = io.BytesIO()
    assert Server(io.BytesIO(b"".join(source)), target, installed_kinds()).run() == 0
    assert all(f'"id": {number}, "result"'.encode() in target.getvalue() for number in range(3))


@pytest.mark.parametrize(
    "odd",
    [
        packed(b"[" * 100_000),
        packed(b"[1]"),
        packed(b"{"),
        b"Content-Length: x\r\n\r\n",
        packed(b'{"id": 7, "method": {"a": 1}}'),
        packed(b'{"id": 7, "method": "textDocument/hover", "params": [1]}'),
    ],
)
def test_an_odd_message_does_not_end_it(odd: bytes) -> None:
    target = io.BytesIO()
    source = io.BytesIO(odd + message("shutdown", 2) + message("exit"))
    assert Server(source, target, installed_kinds()).run() == 0
    assert b'"id": 2, "result"' in target.getvalue()


def test_a_message_of_any_claimed_length_is_no_message() -> None:
    source = io.BytesIO(b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n")
    assert Server(source, io.BytesIO(), installed_kinds()).run() == 1


@pytest.mark.parametrize("method", ["completion", "hover", "definition"])
@pytest.mark.parametrize(("line", "character"), [(10**12, 0), (-5, -5), (0, 10**12)])
def test_a_place_outside_of_the_text_is_answered_at_once(method: str, line: int, character: int) -> None:
    document = {"uri": "file:///p.yaml"}
    position = {"line": line, "character": character}
    _, answers = talk(
        {"method": "textDocument/didOpen", "params": {"textDocument": {**document, "text": TEXT}}},
        {"id": 1, "method": f"textDocument/{method}", "params": {"textDocument": document, "position": position}},
        {"id": 2, "method": "shutdown"},
        {"method": "exit"},
    )
    assert {answer["id"] for answer in answers if "id" in answer} == {1, 2}
    assert all("error" not in answer for answer in answers)
