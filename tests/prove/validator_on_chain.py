"""`arena validator` with its chain on a real runtime, and all else local: beacon, problem bank, development keys.

Arguments: the node's URL, then the validator's own. Where the local twin would be opened, the real adapter is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from arena.chain import opening
from arena.chain.real import BittensorSubtensor
from neurons.cli.app import main
from tests.prove.older_runtime import make_client

if __name__ == "__main__":
    url = sys.argv[1]

    def open_real(path: Path, *, netuid: int, **of_the_twin: Any) -> BittensorSubtensor:
        return BittensorSubtensor(url, netuid=netuid, make_client=make_client)

    opening.LocalSubtensor = open_real  # type: ignore[assignment,misc]
    main(["validator", *sys.argv[2:]])
