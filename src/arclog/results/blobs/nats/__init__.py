"""Blobs in a NATS object store."""
