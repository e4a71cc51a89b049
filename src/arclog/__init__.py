"""arclog: an event-sourced workflow engine."""

__version__ = "0.1.0"
