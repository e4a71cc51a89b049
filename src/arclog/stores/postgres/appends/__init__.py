"""Appends: those of one moment become one statement, in one transaction, on the next free connection."""
