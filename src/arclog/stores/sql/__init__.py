"""What SQLite and PostgreSQL share: statements that are the same, and the parts of a store that run them.

Parts and modules have the same names in `memory`, `sqlite` and `postgres`. The two databases inherit these parts and
add what one of them does differently.
"""
