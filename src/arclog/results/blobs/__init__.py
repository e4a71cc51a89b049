"""Where results are kept: `port` defines a blob store; `files`, `postgres`, `nats` and `object` are four of them."""
