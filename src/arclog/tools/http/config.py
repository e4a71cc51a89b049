"""What an http task may say, as the tool gets it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct


class Part(Struct, frozen=True):
    """One part of a multipart body; with a file name it is a file, else a field."""

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
    #: null is a JSON value too
    json: Any = UNSET
    form: dict[str, Any] | None = None
    #: text, or a ResultRef whose bytes are sent
    body: Any = None
    multipart: list[Part] | None = None
    follow_redirects: bool = True
    decode: Literal["auto", "json", "text", "bytes", "none"] = "auto"
    download: bool = False
    verify: bool = True
