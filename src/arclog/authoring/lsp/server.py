"""The language server: JSON-RPC over two streams, and its features.

Invariants: every request is answered, an unknown one with an error, and the server runs until `exit` or the end of the
input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from arclog import __version__
from arclog.authoring.lsp.features import Features, Place
from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.model.errors import Finding

_SEVERITIES = {"error": 1, "warning": 2, "info": 3}
#: The largest message, in bytes.
_MOST_BYTES = 64 * 1024 * 1024
#: Maximum number of digits of a length that are read: enough for one that is too large.
_MOST_DIGITS = 12
_METHOD_NOT_FOUND = -32601
_INTERNAL_ERROR = -32603


class Server:
    """One editor's session."""

    def __init__(
        self, source: BinaryIO, target: BinaryIO, kinds: Mapping[str, KindSpec], settings: Settings | None = None
    ) -> None:
        self._source = source
        self._target = target
        self._kinds = kinds
        self._settings = settings
        self._texts: dict[str, str] = {}
        #: the features of the last text, by its URI, since parsing takes longer than answering
        self._latest: tuple[str, Features] | None = None
        self._stopping = False

    def run(self) -> int:
        """Serve until the editor disconnects; returns 0 if it sent `shutdown` before."""
        while (message := self._read()) is not None:
            method = message.get("method")
            if method == "exit":
                return 0 if self._stopping else 1
            self._serve(message, str(method))
        return 0 if self._stopping else 1

    def _serve(self, message: dict[str, Any], method: str) -> None:
        handle = _HANDLERS.get(method)
        number = message.get("id")
        if handle is None:
            if number is not None and method != "None":
                self._fail(number, _METHOD_NOT_FOUND, f"{method} is not known")
            return
        try:
            answer = handle(self, message.get("params") or {})
        except Exception as error:  # noqa: BLE001 - an editor goes on whatever one request does
            if number is not None:
                self._fail(number, _INTERNAL_ERROR, f"{type(error).__name__}: {error}")
            return
        if number is not None:
            self._write({"id": number, "result": answer})

    # --- messages -----------------------------------------------------------------------------------------------------

    def _read(self) -> dict[str, Any] | None:
        length = 0
        while True:
            line = self._source.readline()
            if not line:
                return None
            if not line.strip():
                break
            name, _, value = line.decode("ascii", "replace").partition(":")
            if name.strip().lower() == "content-length" and value.strip().isdigit():
                length = int(value.strip()[:_MOST_DIGITS])
        if length > _MOST_BYTES:
            return None
        body = self._source.read(length)
        if len(body) < length:
            return None
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return {}
        return message if isinstance(message, dict) else {}

    def _write(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._target.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._target.flush()

    def _fail(self, number: Any, code: int, text: str) -> None:
        self._write({"id": number, "error": {"code": code, "message": text}})

    # --- requests -----------------------------------------------------------------------------------------------------

    def initialize(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "capabilities": {
                "textDocumentSync": 1,
                "completionProvider": {"triggerCharacters": [".", ":", " ", "{"]},
                "hoverProvider": True,
                "definitionProvider": True,
            },
            "serverInfo": {"name": "arclog", "version": __version__},
        }

    def initialized(self, _: dict[str, Any]) -> None:
        return None

    def shutdown(self, _: dict[str, Any]) -> None:
        self._stopping = True

    def opened(self, params: dict[str, Any]) -> None:
        document = params["textDocument"]
        self._take(document["uri"], document["text"])

    def changed(self, params: dict[str, Any]) -> None:
        for change in params["contentChanges"][-1:]:
            self._take(params["textDocument"]["uri"], change["text"])

    def closed(self, params: dict[str, Any]) -> None:
        uri = params["textDocument"]["uri"]
        self._texts.pop(uri, None)
        self._publish(uri, [])

    def completion(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        features, at = self._features_at(params)
        return [
            {"label": candidate.word, "kind": 14, **({"documentation": candidate.doc} if candidate.doc else {})}
            for candidate in features.complete(at)
        ]

    def hover(self, params: dict[str, Any]) -> dict[str, Any] | None:
        features, at = self._features_at(params)
        text = features.hover(at)
        return {"contents": {"kind": "markdown", "value": text}} if text else None

    def definition(self, params: dict[str, Any]) -> dict[str, Any] | None:
        features, at = self._features_at(params)
        target = features.definition(at)
        return (
            None
            if target is None
            else {
                "uri": params["textDocument"]["uri"],
                "range": _range(self._line(params["textDocument"]["uri"], target.line), target.line, target.column),
            }
        )

    def _features_at(self, params: dict[str, Any]) -> tuple[Features, Place]:
        uri, position = params["textDocument"]["uri"], params["position"]
        # A place after the end of the text means its end.
        number = 1 + max(0, min(position["line"], self._texts.get(uri, "").count("\n") + 1))
        line = self._line(uri, number)
        before = line.encode("utf-16-le")[: 2 * max(0, position["character"])].decode("utf-16-le", "ignore")
        return self._features(uri), Place(number, len(before) + 1)

    def _line(self, uri: str, number: int) -> str:
        lines = self._texts.get(uri, "").splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def _features(self, uri: str) -> Features:
        text = self._texts.get(uri, "")
        if self._latest is None or self._latest[0] != uri or self._latest[1].text is not text:
            self._latest = uri, Features(text, _path(uri), self._kinds, self._settings)
        return self._latest[1]

    def _take(self, uri: str, text: str) -> None:
        self._texts[uri] = text
        # Other YAML files have no findings: only a file with a workflow is a playbook.
        is_playbook = "workflow:" in text and not uri.endswith((".test.yaml", ".test.yml"))
        self._publish(uri, self._features(uri).findings() if is_playbook else [])

    def _publish(self, uri: str, findings: list[Finding]) -> None:
        diagnostics = [
            {
                "range": _range(self._line(uri, finding.at.line), finding.at.line, finding.at.column),
                "severity": _SEVERITIES[finding.severity],
                "code": finding.code,
                "source": "arclog",
                "message": f"{finding.message}\n{finding.hint}" if finding.hint else finding.message,
            }
            for finding in findings
        ]
        self._write({"method": "textDocument/publishDiagnostics", "params": {"uri": uri, "diagnostics": diagnostics}})


def _range(text: str, line: int, column: int) -> dict[str, Any]:
    """The word at a place of a line, as editors count: in units of UTF-16."""
    at = max(column - 1, 0)
    word = _WORD.match(text, at)
    stop = at + 1 if word is None else word.end()
    start, end = ({"line": max(line - 1, 0), "character": _units(text[:place]) or place} for place in (at, stop))
    return {"start": start, "end": end}


_WORD = re.compile(r"[\w.-]+")


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _path(uri: str) -> str:
    return unquote(urlsplit(uri).path) or uri


_HANDLERS: dict[str, Any] = {
    "initialize": Server.initialize,
    "initialized": Server.initialized,
    "shutdown": Server.shutdown,
    "textDocument/didOpen": Server.opened,
    "textDocument/didChange": Server.changed,
    "textDocument/didClose": Server.closed,
    "textDocument/completion": Server.completion,
    "textDocument/hover": Server.hover,
    "textDocument/definition": Server.definition,
}
