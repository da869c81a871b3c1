"""Long proofs may need packages that nothing else does: they are installed once, into build/lucene."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile

import pytest

from tests.harness.lucene_stand import PACKAGES, REQUIREMENTS, missing_lucene


@pytest.fixture(scope="session")
def _lucene() -> None:
    """Makes the Lucene engine importable, installing its packages when they are missing; skips where pip cannot."""
    if not missing_lucene():
        return
    PACKAGES.parent.mkdir(parents=True, exist_ok=True)
    part = tempfile.mkdtemp(prefix=f"{PACKAGES.name}.", dir=PACKAGES.parent)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", part, "-r", str(REQUIREMENTS)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(part)
        pytest.skip(f"pip could not install {REQUIREMENTS.name}: {done.stderr.strip()[-300:]}")
    shutil.rmtree(PACKAGES, ignore_errors=True)
    shutil.move(part, PACKAGES)
    reason = missing_lucene()
    if reason:
        pytest.skip(reason)
