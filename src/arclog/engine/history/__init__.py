"""Recorded runs: forks, replays, simulations, provenance, lineage and archives."""
