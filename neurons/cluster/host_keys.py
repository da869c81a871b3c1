"""Whether a host holds a wallet's keys: then it is no place for a cluster.

Whoever reaches the ports of a cluster's machine, and has its token, runs what he likes there as this user. With a
validator's hotkey he signs records and weights, with a coldkey he moves stake.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from foundation.errors import ArenaError

_PUBLIC = "pub.txt"  # how btcli ends the names of files that hold no secret


def wallet_keys(wallets: Path) -> Iterator[Path]:
    """The files below a folder of wallets that hold a private key, encrypted or not, by name."""
    for wallet in sorted(path for path in wallets.expanduser().glob("*") if path.is_dir()):
        for key in (wallet / "coldkey", *sorted((wallet / "hotkeys").glob("*"))):
            if key.is_file() and not key.name.endswith(_PUBLIC):
                yield key


def require_no_keys(wallets: Path) -> None:
    """Raises ArenaError V2207 with the first key's path."""
    for key in wallet_keys(wallets):
        raise ArenaError("V2207", str(key))
