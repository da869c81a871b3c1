"""One digest by one process, by processes, by a Ray cluster of two nodes, and by one of which a node is killed.

The tests of `tests/neurons` that need a cluster and are skipped where Ray is not installed: here it is installed first,
into build/ray.
"""

from __future__ import annotations

import pytest

from tests.neurons.conftest import arena_base, small_catalogue  # noqa: F401 - fixtures

pytestmark = pytest.mark.prove
