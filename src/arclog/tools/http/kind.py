"""The declaration of kind `http`. The client is imported when the first tool is opened."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct

from arclog.model.config.kinds import KindSpec
from arclog.model.data.shapes import LONGEST_S, Field
from arclog.ports.tool import Tool, ToolKind, ToolServices

# ── config ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Part(Struct, frozen=True):
    """One part of a multipart body: a file if it has a file name, else a field."""

    name: str
    content: Any = ""
    filename: str = ""
    content_type: str = ""


class HttpConfig(Struct, frozen=True):
    """An http task."""

    url: str
    method: str = "GET"
    params: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    #: null is a JSON value, too
    json: Any = UNSET
    form: dict[str, Any] | None = None
    #: text, or a ResultRef whose bytes are sent
    body: Any = None
    multipart: list[Part] | None = None
    follow_redirects: bool = True
    decode: Literal["auto", "json", "text", "bytes", "none"] = "auto"
    download: bool = False
    verify: bool = True


# ── kind ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

#: The default time limit of an attempt, from SPEC.
_TIMEOUT_S = 60


def _open(services: ToolServices) -> Tool:
    from arclog.tools.http.tool import HttpTool  # the client takes a tenth of a second to import

    return HttpTool(services.settings)


def _seconds(name: str, doc: str) -> Field:
    return Field(name, "number", doc, exclusive_min=0, maximum=LONGEST_S)


KIND = ToolKind(
    KindSpec(
        name="http",
        opens_files=False,
        summary="Makes a request; its result is {status_code, headers, url, data}, and a status from 400 on is an error.",
        auth=("bearer", "basic", "oauth2", "secret", "secret_manager", "env", "file"),
        fields=(
            Field("url", "string", "http:// or https:// address.", required=True, template=True),
            Field("method", "string", "Any method.", default="GET", template=True),
            Field(
                "params",
                "object",
                "Added to the url's query; a list repeats its name, null is left out.",
                template=True,
                also=("query", "query_params"),
            ),
            Field("headers", "object", "Headers by name; null is left out.", template=True),
            Field("json", "any", "Body: this value as JSON.", template=True),
            Field("form", "object", "Body: these values as a form (application/x-www-form-urlencoded).", template=True),
            Field(
                "body",
                "any",
                "Body: text unchanged, stored bytes unchanged (streamed), a map or a list as JSON.",
                template=True,
            ),
            Field(
                "multipart",
                "list",
                "Body: these parts (multipart/form-data).",
                items=Field(
                    "multipart[]",
                    "object",
                    "A part; with `filename` it is a file.",
                    fields=(
                        Field("name", "string", "The field's name.", required=True, template=True),
                        Field("content", "any", "Its text.", template=True),
                        Field("filename", "string", "Name of the file.", template=True),
                        Field("content_type", "string", "Type of the file.", template=True),
                    ),
                    template=True,
                ),
                template=True,
            ),
            Field(
                "follow_redirects", "boolean", "Go where 301, 302, 303, 307 and 308 point.", default=True, template=True
            ),
            Field(
                "decode",
                "string",
                "How the body is decoded: `auto` (by its content type), `json`, `text`, `bytes` (stored), `none` (not read).",
                default="auto",
                choices=("auto", "json", "text", "bytes", "none"),
            ),
            Field(
                "download",
                "boolean",
                "Store the body as it is, whatever its type and size.",
                default=False,
                template=True,
            ),
            Field("verify", "boolean", "Check the server's certificate.", default=True, template=True),
        ),
        spec_fields=(
            Field(
                "timeout",
                "number|object",
                "Seconds one attempt may take, or {connect, read, total}.",
                exclusive_min=0,
                maximum=LONGEST_S,
                fields=(
                    _seconds("connect", "Until there is a connection; by default the setting http.connect_timeout_s."),
                    _seconds("read", "Between two pieces of the answer; by default as long as the whole."),
                    _seconds("total", f"The whole attempt; by default {_TIMEOUT_S}."),
                ),
            ),
        ),
        defaults={"timeout": _TIMEOUT_S},
        data_at="data",
        helper="http",
        helper_fields=("status", "headers", "url"),
        by_ref=("body",),
    ),
    _open,
)
