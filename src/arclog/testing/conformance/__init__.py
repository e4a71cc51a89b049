"""One suite per port. The suites are modules of the package, so pytest must be told that their asserts are tests."""

import pytest

pytest.register_assert_rewrite(
    "arclog.testing.conformance.api", "arclog.testing.conformance.bus", "arclog.testing.conformance.store"
)
