"""Filters, tests, methods and functions of templates."""
