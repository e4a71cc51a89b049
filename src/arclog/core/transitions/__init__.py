"""The state of an execution, the decisions about it, and how events change it."""
