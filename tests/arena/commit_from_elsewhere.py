"""Another process of a hotkey: commits a few hashes through a client of its own. Arguments: URL, locks, first byte."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from arena.chain.keys import keypair_signer
from arena.chain.real import BittensorSubtensor
from tests.arena.chain_stands import NETUID, make_client

COMMITS = 3


async def commit_some(url: str, locks: Path, first: int) -> list[str]:
    """The statuses, with their details, of `COMMITS` commitments one after the other."""
    chain = BittensorSubtensor(url, netuid=NETUID, make_client=make_client, lock_folder=locks)
    signer = keypair_signer("//Alice")
    results = [await chain.commit(signer, f"{first + number:02x}" * 32) for number in range(COMMITS)]
    await chain.close()
    return [f"{result.status} {result.detail}".strip() for result in results]


if __name__ == "__main__":
    print("\n".join(asyncio.run(commit_some(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))))
