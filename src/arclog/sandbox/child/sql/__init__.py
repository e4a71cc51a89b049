"""Databases in their own process: `databases` serves connections to DuckDB or SQLite to the worker."""
