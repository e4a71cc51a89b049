"""Blobs as files in a folder."""
