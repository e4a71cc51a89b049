"""Results as files in a folder."""
