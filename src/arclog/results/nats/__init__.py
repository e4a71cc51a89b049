"""Results in a NATS object store."""
