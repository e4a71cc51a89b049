"""Results in PostgreSQL."""
