"""Assignment: which validators evaluate an (agent, problem), and who stands in for them, in order.

Pure function of the race's seed and the permits at the closing block, so every validator and every reader computes the
same. Source: DESIGN section 9.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from arena.chain.port import Metagraph
from arena.race.draw import seeded_order


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The k assigned validators, then the stand-ins in the order in which they are asked."""

    assigned: tuple[str, ...]
    stand_ins: tuple[str, ...]

    @property
    def order(self) -> tuple[str, ...]:
        """Everybody, in the order in which results count."""
        return self.assigned + self.stand_ins


def assign(seed: str, agent_version_id: str, problem_id: str, validators: Iterable[str], copies: int) -> Assignment:
    """Order `validators` by HMAC(seed, agent, problem, hotkey) and cut after `copies`.

    With fewer validators than `copies` all of them are assigned. Raises ValueError for `copies` below 1.
    """
    if copies < 1:
        raise ValueError("at least one validator is needed per problem")
    ordered = sorted(
        set(validators), key=lambda hotkey: (seeded_order(seed, "assign", agent_version_id, problem_id, hotkey), hotkey)
    )
    return Assignment(assigned=tuple(ordered[:copies]), stand_ins=tuple(ordered[copies:]))


def permitted_validators(metagraph: Metagraph) -> tuple[str, ...]:
    """Hotkeys that hold a validator permit, sorted."""
    return tuple(sorted(neuron.hotkey for neuron in metagraph.neurons if neuron.has_validator_permit))
