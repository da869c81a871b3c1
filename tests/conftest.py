"""What every room's tests share: hypothesis profiles, logs that end with the test that configured them, and a Ctrl-C
that reaches the commands they start.

Each process has one thread for sums. How fast a shared machine draws examples says nothing about the code: there is no
deadline. Every run draws the same. The profile `thorough` (`--hypothesis-profile thorough`) draws twenty times as many.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from foundation import logs

settings.register_profile(
    "shared-machine",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("shared-machine"), max_examples=1_000)
settings.load_profile("shared-machine")

# of torch and numpy, here and in the commands that are started: with as many processes as cores, threads of one would
# spin while they wait for each other's turn
os.environ.setdefault("OMP_NUM_THREADS", "1")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell starts what runs in the background so
    signal.signal(signal.SIGINT, signal.default_int_handler)


# where a test may wait for a race, a training run, or a build of the project: first, so that no process of several
# is left alone with it
LONG = ("tests/neurons/", "tests/training/", "tests/redteam/", "tests/structure/", "tests/studies/", "tests/web/")
LONG += ("tests/judge/", "tests/site/", "tests/test_", "tests/arena/test_sealed", "tests/arena/test_store_kills")
LONG += ("tests/arena/test_export_agents", "tests/arena/test_qualifying_variants", "tests/harness/test_host_work")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is imported for the tests is ever garbage: looking through it took a quarter of their collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests before the others; their order is as it was otherwise."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command sends logs to the stderr of its test, which closes with it; the next test has another."""
    yield
    structlog.reset_defaults()
    logs._wanted.clear()
