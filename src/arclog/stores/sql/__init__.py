"""What SQLite and PostgreSQL have in common: the statements that are the same, and the parts of a store that run them.

Each part is a class, a module a concept, with the same names in `memory`, `sqlite` and `postgres`. The two databases inherit
these parts and add what one of them does in its own way.
"""
