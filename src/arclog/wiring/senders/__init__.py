"""Senders of what is published when a run ends."""
