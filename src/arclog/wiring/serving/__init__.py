"""arclog as a server."""
