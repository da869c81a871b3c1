"""Long proofs may need packages that nothing else does: they are installed once, below build/, and nowhere else."""

from __future__ import annotations

import pytest

from tests.harness import catalogue_stand
from tests.neurons.cluster_stand import install


@pytest.fixture(scope="session")
def _lucene() -> None:
    """Makes the Lucene engine importable, installing its packages when they are missing; skips where pip cannot."""
    if catalogue_stand.missing_lucene():
        install(catalogue_stand.PACKAGES, ("--no-deps", "-r", str(catalogue_stand.REQUIREMENTS)))
    if reason := catalogue_stand.missing_lucene():
        pytest.skip(reason)
