"""Senders of notifications and lineage at the end of a run."""
