"""A process to be killed: holds one made-up log after another in a folder and says which, until it is stopped."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import msgspec

from arena.exchange.peer_logs import PeerLogStore
from arena.exchange.port import Claim, Count, LogDigest
from arena.export.model import LogRow
from arena.records.log import Checkpoint, LogStart

VALIDATOR = "5Author"
ROWS = 40


def row(race_id: str, seq: int, validator: str = VALIDATOR) -> LogRow:
    content = msgspec.json.encode({"race": race_id, "seq": seq, "filling": "x" * 2_000})
    return LogRow(
        validator=validator,
        seq=seq,
        prev="00" * 32,
        content_sha256="11" * 32,
        signature="22" * 64,
        content=msgspec.Raw(content),
    )


def hold(held: PeerLogStore, race_id: str, validator: str = VALIDATOR) -> None:
    """Hold one log of ROWS rows."""
    writer = held.writer(race_id)
    for first in range(1, ROWS, 10):
        writer.write([row(race_id, seq, validator) for seq in range(first, first + 10)])
    claim = Claim(
        point=Checkpoint(validator=validator, size=ROWS, root="33" * 32),
        note=f"note of {race_id} by {validator}",
        due=LogDigest(race_id=race_id, count=Count(rows=ROWS), start=LogStart(validator=validator)),
    )
    held.put(writer, claim, end=LogStart(validator=validator, after_seq=ROWS, head="44" * 32, peaks=("55" * 32,) * 2))


if __name__ == "__main__":
    folder = PeerLogStore(Path(sys.argv[1]), races_kept=5)
    for number in itertools.count():
        hold(folder, f"{sys.argv[2]}-{number}")
        print(f"{sys.argv[2]}-{number}", flush=True)
