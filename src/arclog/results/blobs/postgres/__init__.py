"""Blobs in PostgreSQL."""
