"""The bank as a node uses it: a batch for each race, readable when its problems are drawn, burnt whole afterwards.

Two banks keep this contract. `own_stock.BatchStock` seals problems that this node itself holds: its validator could
read them at any time. `sealed_stock.SealedStock` holds the operator's sealed files: nobody here can read one before its
round. Which of the two a node has is a setting; the race cannot tell.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from arena.bank.batch import SealedBatch
from arena.bank.sealing import BatchNotice
from arena.bank.stock import StockLevel
from arena.chain.port import BeaconRound


class Bank(Protocol):
    """One batch per race. Raises ArenaError V2064 where its folder can't be written."""

    def seal_for(
        self, race_id: str, problems_min: int, undrawn: Collection[str] = (), *, round_number: int
    ) -> SealedBatch | BatchNotice:
        """What the race's batch commits to: of at least `problems_min` problems, for a race whose close is followed by
        that round. Asking again gives the same batch. `undrawn` names earlier races that ended before their draw.

        Raises ArenaError P4014, P4015 or P4027 when there is none, P4010, P4025 or P4029 to P4031 for one that may not
        be used.
        """
        ...

    def serves(self, batch_sha256: str, round_number: int) -> bool:
        """Whether this batch may serve a race whose close is followed by that round."""
        ...

    def open(self, race_id: str, beacon_round: BeaconRound) -> None:
        """Make the race's batch readable with the round that its draw follows from. Opening twice is opening once.

        Raises ArenaError P4026, P4010, P4027 or P4029 when that batch can't be raced.
        """
        ...

    def batch(self, race_id: str) -> SealedBatch:
        """The open batch of a race. Raises ArenaError P4001 when there is none (yet), P4010 when it was edited."""
        ...

    def level(self, closes_ms: Sequence[int], now_ms: int, undrawn: Collection[str] = ()) -> StockLevel:
        """How long the stock lasts, given the closes of the races to come, soonest first."""
        ...
