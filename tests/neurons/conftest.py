"""One small catalogue and one guest root for all tests of this room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.neurons.arena_stand import build_small_catalogue, short_folder


@pytest.fixture(scope="session")
def arena_base() -> Iterator[Path]:
    """A folder for runs; the guest root is built in it once."""
    with short_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def small_catalogue(arena_base: Path) -> Path:
    """An index of 2,000 synthetic products."""
    return build_small_catalogue(arena_base)
