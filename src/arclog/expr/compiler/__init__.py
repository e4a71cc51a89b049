"""Compiles the text of a template to closures."""
