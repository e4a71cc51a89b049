"""Findings about a plan."""
