"""Compiles playbooks in separate processes."""
