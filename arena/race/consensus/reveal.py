"""What this validator may show others now: the logs of a roll, once the block that holds their anchors is final.

Pure. Before, showing a record would let others copy it; after, everybody's is fixed. Of its own log a
validator shows what stands under the root that the chain held, and nothing later.
"""

from __future__ import annotations

from collections.abc import Iterable

from arena.exchange.port import Reveal, RevealGate
from arena.race.state.machine import RaceState
from arena.race.state.timeline import ROLLS, anchor_of


def reveal_gate(states: Iterable[RaceState], validator: str) -> RevealGate:
    """What may be shown of these races. `to_seq` is 0 where the chain did not hold what this validator anchored."""
    reveals = []
    for state in states:
        for roll in ROLLS:
            read, own = state.read(anchor_of(roll)), state.stated(anchor_of(roll))
            if read is None:
                continue
            held = {commitment.hotkey: commitment.sha256 for commitment in read.commitments}
            is_ours = own is not None and held.get(validator) == own.sha256
            reveals.append(
                Reveal(race_id=state.race_id, purpose=roll, to_seq=own.size if own is not None and is_ours else 0)
            )
    return RevealGate(reveals=tuple(reveals))
