"""Views of runs for readers: lists, state, blockers, root causes and stored results."""
