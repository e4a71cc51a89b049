"""Connections, their errors, and the schema."""
