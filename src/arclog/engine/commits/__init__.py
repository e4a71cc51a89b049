"""One transaction for each input: decisions, live states, snapshots and ids."""
