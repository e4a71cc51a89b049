"""Kinds for tests of the compiler, shaped like the real ones."""

from arclog.model.config.kinds import KindSpec
from arclog.model.data.shapes import Field

_TIMEOUT = Field(
    "timeout",
    "number|object",
    "Seconds, or {connect, read, total}.",
    exclusive_min=0,
    fields=(Field("connect", "number"), Field("read", "number"), Field("total", "number")),
)

KINDS = {
    kind.name: kind
    for kind in (
        KindSpec("noop", "Does nothing.", fields=(Field("data", "any", template=True),), effectful=False),
        KindSpec(
            "http",
            "Calls a URL.",
            fields=(
                Field("method", "string", choices=("GET", "POST")),
                Field("url", "string", required=True, template=True),
                Field("params", "object", template=True),
            ),
            spec_fields=(_TIMEOUT, Field("lanes", "integer", "Connections.", minimum=1), Field("tls", "object")),
            defaults={"timeout": 60, "tls": {"verify": True, "min": "1.2"}},
            data_at="data",
            helper="http",
            helper_fields=("status", "headers", "url"),
        ),
        KindSpec("postgres", "Runs SQL.", fields=(Field("command", "string", required=True, template=True),)),
        KindSpec(
            "shell",
            "Runs a command.",
            fields=(
                Field(
                    "command",
                    "string|list",
                    required=True,
                    template=True,
                    items=Field("argument", "string", template=True),
                ),
            ),
            helper="sh",
            helper_fields=("exit_code",),
        ),
        KindSpec(
            "python",
            "Runs Python.",
            fields=(Field("code", "string"), Field("script", "string"), Field("args", "object", template=True)),
            verbatim=("code",),
            one_of=(("code", "script"),),
        ),
    )
}
