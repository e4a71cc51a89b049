"""What readers see of runs: lists, state, blockers, root causes and stored results."""
