"""Everything that changes together with the log, a module for each table."""
