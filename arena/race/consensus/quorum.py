"""The quorum of a settlement: whether validators with more than half of the participating stake settled alike.

Promise: pure, integers only, from commitments at the countersign block and the results roll. A commitment binds race
and settlement, so nobody can take another's value for a race of its own; a later commitment of a validator replaces its
earlier one on chain, so nobody states two values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from arena.chain.port import Commitment
from arena.race.consensus.log_round import CountedRoll
from foundation.canonical import canonical_bytes

_DOMAIN = "agent-arena/countersign/1"


def countersign_value(race_id: str, settlement_sha256: str) -> str:
    """What a validator commits for its settlement: sha256 hex."""
    return hashlib.sha256(canonical_bytes([_DOMAIN, race_id, settlement_sha256])).hexdigest()


def stakes_by_value(roll: CountedRoll, commitments: Iterable[Commitment], stakes: Mapping[str, int]) -> dict[str, int]:
    """The participating stake (rao) behind each value that stands on chain, whatever it is, by value."""
    behind: dict[str, int] = {}
    for hotkey, value in sorted({each.hotkey: each.sha256 for each in commitments}.items()):
        if hotkey in roll.participants:
            behind[value] = behind.get(value, 0) + stakes.get(hotkey, 0)
    return dict(sorted(behind.items()))


def quorum_value(roll: CountedRoll, commitments: Iterable[Commitment], stakes: Mapping[str, int]) -> str | None:
    """The value with more than half of the participating stake behind it, or None. At most one can have it.

    What stands in a slot that holds no countersignature (a receipt, an anchor) differs between validators or is
    countersigned by nobody, and has no quorum; were it to have one, no settlement would match it.
    """
    behind = stakes_by_value(roll, commitments, stakes)
    return next((value for value, rao in behind.items() if 2 * rao > roll.participating_rao), None)
