"""Long proofs may need packages that nothing else does: they are installed once, below build/, and nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import catalogue_stand
from tests.neurons import cluster_stand


@pytest.fixture(scope="session")
def _lucene() -> None:
    """Makes the Lucene engine importable, installing its packages when they are missing; skips where pip cannot."""
    if catalogue_stand.missing_lucene():
        _install(catalogue_stand.PACKAGES, ("--no-deps", "-r", str(catalogue_stand.REQUIREMENTS)))
    if reason := catalogue_stand.missing_lucene():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    """Makes Ray importable, here and in every process that a test starts, installing what the extra `cluster` names
    when it is missing; skips where pip cannot, or where no network of a test's own can be made."""
    packages, constraints = str(cluster_stand.PACKAGES), str(cluster_stand.ROOT / "constraints.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", packages, prepend=os.pathsep)
        patch.setattr(sys, "path", [*sys.path, packages])
        if not cluster_stand.is_installed():
            _install(cluster_stand.PACKAGES, ("-c", constraints, cluster_stand.REQUIREMENT))
        if reason := cluster_stand.missing():
            pytest.skip(reason)
        yield


def _install(folder: Path, words: tuple[str, ...]) -> None:
    """`pip install WORDS` into `folder`, whole or not at all; skips where pip cannot."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", part, *words]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(part)
        pytest.skip(f"pip could not install {words[-1]}: {done.stderr.strip()[-300:]}")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(part, folder)
