"""What a nats task may say, as the tool gets it, and which keys belong to which operation."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from arclog.model.config.kinds import Variant
from arclog.tools.nats.failure import refused

Op = Literal[
    "publish", "request", "fetch", "ack",
    "kv_get", "kv_put", "kv_create", "kv_update", "kv_delete", "kv_keys", "kv_history",
]  # fmt: skip

#: What each operation needs, and what it takes beside that.
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
    #: null is a JSON value too; may be a ResultRef
    data: Any = UNSET
    encoding: Literal["auto", "json", "text", "base64"] | UnsetType = UNSET
    headers: dict[str, Any] | UnsetType = UNSET
    #: a list, or a ResultRef of one
    messages: Any = UNSET
    #: of publish: true, or its name; of fetch: its name
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
    """One of the `messages` of a publish."""

    subject: str | None = None
    data: Any = None
    headers: dict[str, Any] | None = None
    msg_id: str | None = None


def check(config: NatsConfig) -> None:
    """Keys that do not belong to the operation, lack, or exclude each other."""
    op = _BY_NAME[config.op]
    for name in config.__struct_fields__:
        given = getattr(config, name) is not UNSET
        if given and name not in _EVERYWHERE and name not in (*op.needs, *op.takes):
            fitting = ", ".join(one.name for one in OPS if name in (*one.needs, *one.takes))
            raise refused(f"{name} belongs to op {fitting}, not to {config.op}")
        if not given and name in op.needs:
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
        raise refused("`data` and `msg_id` of several messages stand in `messages`, each with its own")
    if config.stream is UNSET or config.stream is False:
        for name in ("msg_id", "ttl_s"):
            if getattr(config, name) is not UNSET:
                raise refused(f"{name} is for a stream: say `stream: true`, or its name")


def _check_numbers(config: NatsConfig) -> None:
    least = {"wait_s": 0, "delay_s": 0, "batch": 1, "ttl_s": 1, "revision": 0}
    for name, lowest in least.items():
        value = getattr(config, name)
        if value is not UNSET and value < lowest:
            raise refused(f"{name}: {value} is below {lowest}")
