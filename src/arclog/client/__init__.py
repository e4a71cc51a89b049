"""arclog from the outside: the API, control and results ports over HTTP."""
