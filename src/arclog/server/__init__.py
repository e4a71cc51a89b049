"""The control plane as an HTTP service, over `ports.views.api` and `ports.control`."""
