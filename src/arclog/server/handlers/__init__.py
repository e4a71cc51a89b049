"""Handlers of the operations, one module for each module of `arclog.operations`."""
