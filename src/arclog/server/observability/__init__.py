"""The server's own logs, metrics and traces."""
