"""Playbooks compiled in processes of their own."""
