"""Inputs and results of a worker's tasks."""
