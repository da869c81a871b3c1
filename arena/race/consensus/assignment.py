"""Assignment: which validators evaluate an (agent, problem), and who stands in for them, in order.

Pure function of the race's seed and the permits at the closing block, so every validator and every reader computes the
same. Source: docs/architecture.md#the-mechanism.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from arena.chain.port import Metagraph
from arena.race.settlement.draw import seeded_order

_QUALIFYING_DOMAIN = b"agent-arena/qualifying/1\n"


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


def qualifying_order(agent_version_id: str, validators: Iterable[str]) -> tuple[str, ...]:
    """In which order validators qualify an agent: the first `validators_asked` are asked, the others stand in.

    The seed is the agent's id: it is known when the agent is, and a miner who picks an id for its validators must pick
    its source for it. AGREEMENT.md, "Work".
    """
    seed = hashlib.sha256(_QUALIFYING_DOMAIN + agent_version_id.encode()).hexdigest()
    return assign(seed, agent_version_id, "", validators, 1).order


def is_work_due(
    order: tuple[str, ...],
    validator: str,
    asked: int,
    needed: int,
    done: Mapping[str, bool],
    waited_ms: int,
    step_ms: int,
) -> bool:
    """Whether a validator should do a piece of work now: at once when it is among the first `asked` of `order`; as the
    n-th stand-in once `n x step_ms` have passed and fewer than `needed` of those before it say that they are done.

    `done` holds who says so; nobody believes it further than this. False for one that is not in the order.
    """
    if validator not in order:
        return False
    place = order.index(validator)
    if place < asked:
        return True
    before = sum(done.get(other, False) for other in order[:place])
    return before < needed and waited_ms >= step_ms * (place - asked + 1)


def permitted_validators(metagraph: Metagraph) -> tuple[str, ...]:
    """Hotkeys that hold a validator permit, sorted."""
    return tuple(sorted(neuron.hotkey for neuron in metagraph.neurons if neuron.has_validator_permit))
