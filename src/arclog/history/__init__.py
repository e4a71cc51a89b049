"""Work with recorded runs: check them against today's code, compare them, and start new runs from them. Pure."""
