"""The embargo on a winner's source: when it opens, and whether it may be seen at a moment.

Pure. The time follows from what the promoting settlement itself publishes: the race's close and the policy it was
settled under. Whatever shows a source to the public asks `is_source_open`; a settlement that may not be shown yet opens
nothing (`arena.bank.batches.release`). Source: docs/architecture.md#the-mechanism.
"""

from __future__ import annotations

from arena.race.settlement.provenance import policy_of
from arena.race.state.schedule import embargo_ends_ms
from arena.records.model import SettlementRecord


def source_opens_ms(settlement: SettlementRecord) -> int | None:
    """When (unix ms) the source of the agent that a settlement promoted opens; None where it promoted none.

    Raises ArenaError V2102 for a promotion that does not state its inputs, or another policy than it names: such a one
    names no time.
    """
    if settlement.state != "settled" or not settlement.is_promotion:
        return None
    rules = policy_of(settlement).embargo
    assert settlement.inputs is not None  # `policy_of` read them
    return embargo_ends_ms(settlement.inputs.closes_ms, rules)


def is_source_open(opens_ms: int | None, at_ms: int) -> bool:
    """Whether a source may be seen at a moment (unix ms). One that no promotion opens stays its miner's."""
    return opens_ms is not None and opens_ms <= at_ms
