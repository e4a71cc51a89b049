"""A whole arclog cluster on this machine, from packages alone: for trying it out, and for tests that kill its parts."""
