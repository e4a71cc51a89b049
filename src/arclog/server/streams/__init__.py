"""Events and task logs of a run as pages and streams."""
