"""One module a group of routes."""
