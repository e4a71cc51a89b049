"""Commands that work with recorded runs."""
