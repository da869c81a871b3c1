"""Racing alone: can one validator settle races from its own results?

Promise: a pure function, asked before a node starts on a network where it can't see other validators' records. Results
a policy asks for and nobody can deliver would make every race end without one, and say so only at its settlement.
"""

from __future__ import annotations

from collections.abc import Collection

from arena.policy import Policy
from arena.race.consensus.rulings import words_floor
from arena.race.settlement.scores import results_needed


def lone_race_refusal(policy: Policy, validators: Collection[str]) -> str | None:
    """Why one validator's own results can't qualify agents or settle a race, or None when they can.

    `validators` hold a permit. A race asks for fewer results where fewer permits exist,
    and admission by agreement (`rulings.words_floor`) for fewer words; a policy's own number of qualifying validators
    stays.
    """
    required = words_floor(policy, len(validators))
    if required > 1:
        return (
            f"policy {policy.name} qualifies an agent by {required} validators, and this one sees only its own results"
        )
    needed = results_needed(policy.race, len(validators))
    if needed > 1:
        return (
            f"policy {policy.name} needs {needed} results per problem, {len(validators)} validators hold a permit, "
            "and this one sees only its own results"
        )
    return None
