"""One suite per port. The suites are modules of the package, so their asserts must be registered with pytest."""

import pytest

pytest.register_assert_rewrite(
    "arclog.testing.conformance.api", "arclog.testing.conformance.bus", "arclog.testing.conformance.store"
)
