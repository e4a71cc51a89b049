"""The command line over a fake Api, as in the unit tests."""

from tests.unit.cli.conftest import api, arclog, home, playbook

__all__ = ["api", "arclog", "home", "playbook"]
