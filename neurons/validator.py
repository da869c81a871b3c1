"""The validator: `python neurons/validator.py --wallet.name NAME --wallet.hotkey NAME --netuid 15`.

The same command as `arena validator`, for people who start it the ecosystem's way. `--dry-run` prints every setting
with the place it came from and starts nothing. Exit codes: 0 stopped cleanly, 2 usage, 3 environment not ready, 4
integrity violation.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(
        Path(__file__).resolve().parents[1]
    )  # started from a checkout: the packages lie beside this folder
    from neurons.cli.app import main

    main(["validator", *sys.argv[1:]])
