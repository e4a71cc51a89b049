"""Blob stores, which keep the bytes of results: `port` defines the interface; `files`, `postgres`, `nats` and `object`
implement it.
"""
