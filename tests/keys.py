"""Keys of tests: the same in every run, and no two tests share one, since they may share a server."""

from __future__ import annotations

import os
from collections import Counter
from hashlib import sha256

from arena.chain.keys import keypair_signer
from arena.chain.port import Signer

_made: Counter[str] = Counter()


def generate_signer() -> Signer:
    """The next key of the test that runs."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    _made[test] += 1
    return keypair_signer(f"//{sha256(f'{test} {_made[test]}'.encode()).hexdigest()[:24]}")
