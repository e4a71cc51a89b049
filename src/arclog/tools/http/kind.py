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
        summary="Sends an HTTP request. The result is {status_code, headers, url, data}; a status of 400 or above is an error.",
        auth=("bearer", "basic", "oauth2", "secret", "secret_manager", "env", "file"),
        fields=(
            Field("url", "string", "Address of the request, http:// or https://.", required=True, template=True),
            Field("method", "string", "HTTP method.", default="GET", template=True),
            Field(
                "params",
                "object",
                "Parameters that are added to the query of the URL. A list repeats the parameter; null is omitted.",
                template=True,
                also=("query", "query_params"),
            ),
            Field("headers", "object", "Headers by name; null is omitted.", template=True),
            Field("json", "any", "Body: a value that is sent as JSON.", template=True),
            Field(
                "form",
                "object",
                "Body: values that are sent as a form (application/x-www-form-urlencoded).",
                template=True,
            ),
            Field(
                "body",
                "any",
                "Body: a text or stored bytes (streamed), sent unchanged, or a map or list, sent as JSON.",
                template=True,
            ),
            Field(
                "multipart",
                "list",
                "Body: parts that are sent as multipart/form-data.",
                items=Field(
                    "multipart[]",
                    "object",
                    "One part. A part with `filename` is a file.",
                    fields=(
                        Field("name", "string", "Name of the field.", required=True, template=True),
                        Field("content", "any", "Content of the part.", template=True),
                        Field("filename", "string", "Name of the file.", template=True),
                        Field("content_type", "string", "Content type of the file.", template=True),
                    ),
                    template=True,
                ),
                template=True,
            ),
            Field(
                "follow_redirects",
                "boolean",
                "Whether to follow redirects (301, 302, 303, 307 and 308).",
                default=True,
                template=True,
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
                "Whether to store the body unchanged in the result store, whatever its type and size.",
                default=False,
                template=True,
            ),
            Field("verify", "boolean", "Whether to verify the server's certificate.", default=True, template=True),
        ),
        spec_fields=(
            Field(
                "timeout",
                "number|object",
                "Time limit of one attempt in seconds, or {connect, read, total}.",
                exclusive_min=0,
                maximum=LONGEST_S,
                fields=(
                    _seconds(
                        "connect", "Seconds to establish a connection. Default: the setting `http.connect_timeout_s`."
                    ),
                    _seconds("read", "Seconds to wait for further data. Default: the value of `total`."),
                    _seconds("total", f"Seconds for the whole attempt. Default: {_TIMEOUT_S}."),
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
