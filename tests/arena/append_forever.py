"""A process to be killed: appends episodes to a state folder's log until it dies, saying so on stdout.

`python -m tests.arena.append_forever STATE_DIR [OBJECTS]`: bodies go to the object store at that URL, if one is given.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from arena.chain.keys import keypair_signer
from arena.records.sequencer import Sequencer
from arena.store.embedded import start_embedded
from arena.store.objects import open_objects
from arena.store.postgres import PostgresStore
from foundation.errors import ArenaError
from tests.arena.log_stand import HOST, episode, item

ITEMS = 4_000


async def append_forever(state_dir: Path, objects: str = "") -> None:
    signer = keypair_signer("//Alice")
    server = start_embedded(state_dir)
    store = await PostgresStore.open(
        server.dsn_for(signer.hotkey),
        signer.hotkey,
        is_exclusive=True,
        objects=open_objects(objects) if objects else None,
    )
    sequencer = Sequencer(store, signer, lambda: time.time_ns() // 1_000_000, HOST)
    await store.enqueue([item(n, "killed") for n in range(ITEMS)])
    while leases := await store.claim(1, 60_000):
        lease = leases[0]
        number = int(lease.item.context.problem_id[1:])
        payloads, body = episode(number, race_id="killed", attempt_id=lease.attempt_id, result_bytes=40_000)
        await sequencer.append(payloads, [body], finish=lease)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    try:
        asyncio.run(append_forever(Path(sys.argv[1]), *sys.argv[2:]))
    except ArenaError as error:  # its server was killed
        sys.exit(str(error))
