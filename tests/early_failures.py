"""Names a test on a line of its own as soon as it has failed: the reports come at the end of the run, a quarter of an hour later."""

from __future__ import annotations

import re

import pytest


class EarlyFailures:
    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)  # after the letter of the test
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\n{failure(report)}", red=True)


def failure(report: pytest.TestReport) -> str:
    """The test, as pytest takes it to run it again, and the first line of the reason."""
    crash = getattr(report.longrepr, "reprcrash", None)
    reason = str(crash.message if crash else report.longrepr).strip().partition("\n")[0]
    phase = "" if report.when == "call" else f" in {report.when}"
    test = re.sub(r"@[^\]]*$", "", report.nodeid)  # without the name of its group
    return f"FAILED{phase} {test}: {reason:.200}"


@pytest.hookimpl(trylast=True)  # after the terminal reporter is there
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(EarlyFailures(terminal))
