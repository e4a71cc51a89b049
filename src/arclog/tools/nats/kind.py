"""The declaration of kind `nats`. The client is imported when the first tool is opened."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from arclog.model.config.extras import required
from arclog.model.config.kinds import KindSpec, Variant
from arclog.model.data.shapes import LONGEST_S, Field
from arclog.ports.tool import Tool, ToolKind, ToolServices
from arclog.tools.nats.failure import refused

# ── config ────────────────────────────────────────────────────────────────────────────────────────────────────────────

Op = Literal[
    "publish", "request", "fetch", "ack",
    "kv_get", "kv_put", "kv_create", "kv_update", "kv_delete", "kv_keys", "kv_history",
]  # fmt: skip

#: The required and the optional keys of each operation.
OPS: tuple[Variant, ...] = (
    Variant("publish", takes=("subject", "data", "encoding", "headers", "messages", "stream", "msg_id", "ttl_s")),
    Variant("request", needs=("subject",), takes=("data", "encoding", "headers", "decode", "wait_s")),
    Variant("fetch", needs=("stream", "consumer"), takes=("batch", "wait_s", "decode", "ack")),
    Variant("ack", needs=("messages",), takes=("how", "delay_s")),
    Variant("kv_get", needs=("bucket", "key"), takes=("revision", "decode")),
    Variant("kv_put", needs=("bucket", "key", "data"), takes=("encoding",)),
    Variant("kv_create", needs=("bucket", "key", "data"), takes=("encoding", "ttl_s")),
    Variant("kv_update", needs=("bucket", "key", "data", "revision"), takes=("encoding",)),
    Variant("kv_delete", needs=("bucket", "key"), takes=("revision",)),
    Variant("kv_keys", needs=("bucket",), takes=("filter",)),
    Variant("kv_history", needs=("bucket", "key"), takes=("decode",)),
)
_BY_NAME = {variant.name: variant for variant in OPS}
_EVERYWHERE = ("op", "servers", "inbox_prefix")


class NatsConfig(Struct, frozen=True):
    """A nats task."""

    op: Op
    servers: str | list[str] = ""
    inbox_prefix: str = ""
    subject: str | UnsetType = UNSET
    #: null is a JSON value, too; may be a ResultRef
    data: Any = UNSET
    encoding: Literal["auto", "json", "text", "base64"] | UnsetType = UNSET
    headers: dict[str, Any] | UnsetType = UNSET
    #: a list, or a ResultRef of one
    messages: Any = UNSET
    #: for publish: true, or its name; for fetch: its name
    stream: bool | str | UnsetType = UNSET
    msg_id: str | UnsetType = UNSET
    ttl_s: int | UnsetType = UNSET
    decode: Literal["auto", "json", "text", "base64"] | UnsetType = UNSET
    wait_s: float | UnsetType = UNSET
    consumer: str | UnsetType = UNSET
    batch: int | UnsetType = UNSET
    ack: Literal["later", "now"] | UnsetType = UNSET
    how: Literal["ack", "nak", "term", "progress"] | UnsetType = UNSET
    delay_s: float | UnsetType = UNSET
    bucket: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    filter: str | UnsetType = UNSET


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """One of the `messages` of `publish`."""

    subject: str | None = None
    data: Any = None
    headers: dict[str, Any] | None = None
    msg_id: str | None = None


def check(config: NatsConfig) -> None:
    """Refuse keys that do not belong to the operation, are missing, or exclude each other."""
    op = _BY_NAME[config.op]
    for name in config.__struct_fields__:
        is_set = getattr(config, name) is not UNSET
        if is_set and name not in _EVERYWHERE and name not in (*op.needs, *op.takes):
            fitting = ", ".join(row.name for row in OPS if name in (*row.needs, *row.takes))
            raise refused(f"{name} belongs to op {fitting}, not to {config.op}")
        if not is_set and name in op.needs:
            raise refused(f"op {config.op} needs `{name}`")
    if config.op == "publish":
        _check_publish(config)
    if config.op == "fetch" and not isinstance(config.stream, str):
        raise refused("op fetch needs the name of its stream: `stream: NAME`")
    if config.delay_s is not UNSET and config.how != "nak":
        raise refused("delay_s belongs to `how: nak`")
    _check_numbers(config)


def _check_publish(config: NatsConfig) -> None:
    if config.messages is UNSET:
        if config.subject is UNSET or config.data is UNSET:
            raise refused("op publish needs `subject` and `data`, or `messages`")
    elif config.data is not UNSET or config.msg_id is not UNSET:
        raise refused("`data` and `msg_id` of several messages belong in the entries of `messages`")
    if config.stream is UNSET or config.stream is False:
        for name in ("msg_id", "ttl_s"):
            if getattr(config, name) is not UNSET:
                raise refused(f"{name} requires a stream: set `stream: true`, or its name")


def _check_numbers(config: NatsConfig) -> None:
    least = {"wait_s": 0, "delay_s": 0, "batch": 1, "ttl_s": 1, "revision": 0}
    for name, lowest in least.items():
        value = getattr(config, name)
        if value is not UNSET and value < lowest:
            raise refused(f"{name}: {value} is below {lowest}")


# ── kind ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


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
        summary="Publishes, requests, fetches and acknowledges messages, and reads and writes key-value buckets on NATS.",
        auth=("secret", "secret_manager", "env", "file", "basic", "bearer", "oauth2"),
        fields=(
            Field("op", "string", "The operation.", required=True, choices=tuple(op.name for op in OPS)),
            _field(
                "servers",
                "string|list",
                "Address, or addresses of one cluster: nats://host:4222 or tls://host:4222. Default: the addresses in `auth`.",
                items=Field("server", "string", "An address.", template=True),
            ),
            _field("inbox_prefix", "string", "Subject prefix on which replies are received. Default: `_INBOX`."),
            _field("subject", "string", "publish, request: subject of the message."),
            _field(
                "data",
                "any",
                "Content to send or write: a text or stored bytes are sent unchanged, other values as JSON.",
            ),
            _field(
                "encoding",
                "string",
                "How `data` is encoded: `auto`, `json` (a text becomes a JSON string), `text`, `base64` (decoded before sending).",
                default="auto",
                choices=("auto", "json", "text", "base64"),
            ),
            _field("headers", "object", "publish, request: headers by name; null is omitted."),
            _field(
                "messages",
                "any",
                "publish: a list of {subject, data, headers, msg_id}. ack: a message from `fetch`, or a list of them.",
            ),
            _field(
                "stream",
                "boolean|string",
                "publish: `true` waits until a stream has stored the message, a name until that stream has stored it. fetch: name of the stream.",
            ),
            _field(
                "msg_id",
                "string",
                "publish to a stream: id for deduplication. Default: the task's idempotency key.",
            ),
            _field(
                "ttl_s",
                "integer",
                "publish to a stream, kv_create: seconds after which the message or value expires.",
                minimum=1,
            ),
            _field(
                "decode",
                "string",
                "How content is decoded: `auto` (as JSON if possible, otherwise as text, otherwise as base64), `json`, `text`, `base64`.",
                default="auto",
                choices=("auto", "json", "text", "base64"),
            ),
            _field(
                "wait_s",
                "number",
                "request: seconds to wait for the reply. fetch: seconds to wait for the first message; 0 fetches only available messages.",
                minimum=0,
                maximum=LONGEST_S,
            ),
            _field("consumer", "string", "fetch: name of the durable pull consumer."),
            _field(
                "batch",
                "integer",
                "fetch: maximum number of messages. Default: 100; at most `nats.max_messages`.",
                minimum=1,
            ),
            _field(
                "ack",
                "string",
                "fetch: when messages are acknowledged: `later` (by a task with `op: ack`) or `now` (before the result is recorded, so that a crash can lose them).",
                default="later",
                choices=("later", "now"),
            ),
            _field(
                "how",
                "string",
                "ack: `ack` (processed), `nak` (deliver again), `term` (do not deliver again), `progress` (extend the time for processing).",
                default="ack",
                choices=("ack", "nak", "term", "progress"),
            ),
            _field(
                "delay_s",
                "number",
                "ack with `how: nak`: seconds before the message is delivered again.",
                minimum=0,
                maximum=LONGEST_S,
            ),
            _field("bucket", "string", "kv: name of the bucket."),
            _field("key", "string", "kv: the key."),
            _field(
                "revision",
                "integer",
                "kv_update, kv_delete: the operation fails if this is not the latest revision. kv_get: the revision to read.",
                minimum=0,
            ),
            _field(
                "filter", "string", "kv_keys: pattern of the keys; `*` matches one part and `>` all remaining parts."
            ),
        ),
        defaults={"timeout": 60},
        data_at="data",
        by_ref=("data", "messages"),
        choice="op",
        variants=OPS,
    ),
    _open,
)
