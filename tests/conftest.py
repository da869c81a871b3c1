"""What every room's tests share: one hypothesis profile (how fast a shared machine draws examples says nothing about
the code), and logs that end with the test that configured them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command sends logs to the stderr of its test, which closes with it; the next test has another."""
    yield
    structlog.reset_defaults()
