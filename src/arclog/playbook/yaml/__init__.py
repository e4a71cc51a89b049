"""YAML texts with the place of every value."""
