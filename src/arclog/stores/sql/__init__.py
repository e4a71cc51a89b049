"""The code that SQLite and PostgreSQL share: common statements, and the parts of a store that run them.

Parts and modules have the same names in `memory`, `sqlite` and `postgres`. The two databases inherit these parts and
add their differences.
"""
