"""The kind `nats` as data. The client is imported when the first tool is opened."""

from __future__ import annotations

from typing import Any

from arclog.model.config.extras import required
from arclog.model.config.kinds import KindSpec
from arclog.model.data.shapes import LONGEST_S, Field
from arclog.ports.tool import Tool, ToolKind, ToolServices
from arclog.tools.nats.config import OPS


def _open(services: ToolServices) -> Tool:
    with required("nats", "kind nats"):
        from arclog.tools.nats.tool import NatsTool  # the client takes a tenth of a second to import
    return NatsTool(services.settings)


def _field(name: str, kind: str, doc: str, **more: Any) -> Field:
    return Field(name, kind, doc, template=True, **more)


KIND = ToolKind(
    KindSpec(
        name="nats",
        opens_files=False,
        summary="Publishes, asks, fetches and acknowledges messages, and reads and writes key-value buckets on NATS.",
        auth=("secret", "secret_manager", "env", "file", "basic", "bearer", "oauth2"),
        fields=(
            Field("op", "string", "What to do.", required=True, choices=tuple(op.name for op in OPS)),
            _field(
                "servers",
                "string|list",
                "nats://host:4222 or tls://host:4222, one or several of one cluster; else `auth` has them.",
                items=Field("server", "string", "An address.", template=True),
            ),
            _field("inbox_prefix", "string", "Subject below which answers are received; `_INBOX` by default."),
            _field("subject", "string", "publish, request: where the message goes."),
            _field(
                "data", "any", "Content to send or write: a text unchanged, stored bytes unchanged, otherwise JSON."
            ),
            _field(
                "encoding",
                "string",
                "How `data` is sent: auto, json (a text as a JSON text), text, base64 (decoded first).",
                default="auto",
                choices=("auto", "json", "text", "base64"),
            ),
            _field("headers", "object", "publish, request: headers by name; null is left out."),
            _field(
                "messages",
                "any",
                "publish: a list of {subject, data, headers, msg_id}. ack: what `fetch` gave, one or a list.",
            ),
            _field(
                "stream",
                "boolean|string",
                "publish: true waits until a stream has the message, a name until that stream has it. fetch: the stream.",
            ),
            _field(
                "msg_id", "string", "publish to a stream: what it knows the message by; the task's own key by default."
            ),
            _field("ttl_s", "integer", "publish to a stream, kv_create: seconds after which it expires.", minimum=1),
            _field(
                "decode",
                "string",
                "What bytes become: auto (JSON, else text, else base64), json, text, base64.",
                default="auto",
                choices=("auto", "json", "text", "base64"),
            ),
            _field(
                "wait_s",
                "number",
                "request: how long to wait for the answer. fetch: how long for a first message; 0 takes what is there.",
                minimum=0,
                maximum=LONGEST_S,
            ),
            _field("consumer", "string", "fetch: the durable pull consumer."),
            _field("batch", "integer", "fetch: most messages, 100 by default; at most `nats.max_messages`.", minimum=1),
            _field(
                "ack",
                "string",
                "fetch: later (by a task with `op: ack`) or now (before the result is recorded: a crash loses them).",
                default="later",
                choices=("later", "now"),
            ),
            _field(
                "how",
                "string",
                "ack: ack (done), nak (deliver again), term (never again), progress (more time).",
                default="ack",
                choices=("ack", "nak", "term", "progress"),
            ),
            _field(
                "delay_s", "number", "ack with nak: deliver again after so many seconds.", minimum=0, maximum=LONGEST_S
            ),
            _field("bucket", "string", "kv: the bucket."),
            _field("key", "string", "kv: the key."),
            _field(
                "revision",
                "integer",
                "kv_update, kv_delete: only if this is its last revision. kv_get: this revision.",
                minimum=0,
            ),
            _field("filter", "string", "kv_keys: keys like this, with * for one part and > for the rest."),
        ),
        defaults={"timeout": 60},
        data_at="data",
        by_ref=("data", "messages"),
        choice="op",
        variants=OPS,
    ),
    _open,
)
