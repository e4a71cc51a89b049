"""The control plane as an HTTP service, over `ports.api` and `ports.control`."""
