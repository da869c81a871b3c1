"""The miner: `python neurons/miner.py --wallet.name NAME --wallet.hotkey NAME --netuid 15 submit AGENT.py`.

The same commands as `arena submit`, `commit`, `status`, `withdraw` and `winner`, for people who start them
the ecosystem's way: flags may stand before the command, and with no command it shows the status. Exit codes are those
of `arena`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

COMMANDS = ("submit", "commit", "status", "withdraw", "winner")
_SWITCHES = ("--json", "--register", "--watch", "--again", "--yes")
# A miner has no log to adjust; the ecosystem's launch scripts pass these to every neuron.
_WITHOUT_MEANING = ("--logging.debug", "--logging.info", "--logging.trace")


def in_order(argv: Sequence[str]) -> list[str]:
    """The arguments with the command first; `status` where there is none but flags."""
    kept = [argument for argument in argv if argument not in _WITHOUT_MEANING]
    for place, (before, argument) in enumerate(zip(["", *kept], kept, strict=False)):
        # a command's name may also be the value of the flag before it: --wallet.name submit
        is_value = before.startswith("-") and "=" not in before and before not in _SWITCHES
        if argument in COMMANDS and not is_value:
            return [argument, *kept[:place], *kept[place + 1 :]]
    return kept if "--help" in kept else ["status", *kept]


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # from a checkout: the packages lie beside this folder
    from neurons.cli.app import main

    main(in_order(sys.argv[1:]))
