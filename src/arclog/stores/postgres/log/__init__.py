"""Appends to the log, and reading it."""
