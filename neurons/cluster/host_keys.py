"""Whether a host holds a wallet's keys, or a validator runs there: then it is no place for a cluster.

Whoever reaches the ports of a cluster's machine, and has its token, runs what he likes there as this user. With a
validator's hotkey he signs records and weights, with a coldkey he moves stake.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from foundation.errors import ArenaError
from neurons.health.node_file import read_node_file

_PUBLIC = "pub.txt"  # how btcli ends the names of files that hold no secret


def wallet_keys(wallets: Path) -> Iterator[Path]:
    """The files below a folder of wallets that hold a private key, encrypted or not, by name."""
    for wallet in sorted(path for path in wallets.expanduser().glob("*") if path.is_dir()):
        for key in (wallet / "coldkey", *sorted((wallet / "hotkeys").glob("*"))):
            if key.is_file() and not key.name.endswith(_PUBLIC):
                yield key


def require_no_keys(wallets: Path, state_dir: Path) -> None:
    """Raises ArenaError V2207 with the first key's path, or with the validator whose node runs over this state folder:
    its key may lie anywhere."""
    for key in wallet_keys(wallets):
        raise ArenaError("V2207", str(key))
    node = read_node_file(state_dir)
    if node.beat is not None and node.ending is None:
        raise ArenaError("V2207", f"validator {node.beat.hotkey} runs here, over {state_dir}")
