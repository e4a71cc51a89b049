"""Commands that start, show and steer runs."""
