"""Tests of playbooks: `*.test.yaml` files, run offline and in virtual time by the real engine with mocked tools.

`arclog test` and the pytest plugin `arclog.testing.pytest_plugin` use the same functions.
"""

from arclog.testing.playbook_tests.cases import Case, CaseFile, Mock, read_cases
from arclog.testing.playbook_tests.runner import CaseReport, FileReport, find_files, run_file

__all__ = ["Case", "CaseFile", "CaseReport", "FileReport", "Mock", "find_files", "read_cases", "run_file"]
