"""`python -m arclog` is the command `arclog`."""

from __future__ import annotations

from arclog.cli.main import main

if __name__ == "__main__":
    main()
