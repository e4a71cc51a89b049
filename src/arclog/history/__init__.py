"""Work with recorded runs: check them against the current code, compare them, and start new runs from them. No I/O."""
