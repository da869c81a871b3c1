"""What is drawn: problems from the sealed batch, validators for each pair, and the bar of the suite before a race."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable

import msgspec

from arena.chain.port import BeaconRound, Metagraph
from arena.policy import Policy
from foundation.canonical import canonical_bytes, content_hash

UNIT_E4 = 10_000  # one, in ten-thousandths
_SEED_DOMAIN = "agent-arena/race-seed/1"
_VARIANT_DOMAIN = "agent-arena/qualifying-seed/1"


def race_seed(race_id: str, batch_sha256: str, beacon: BeaconRound) -> str:
    """The seed of a race, hex. `beacon` must be verified by the caller; its signature is compared as lower-case hex."""
    signature = bytes.fromhex(beacon.signature).hex()
    return content_hash([_SEED_DOMAIN, race_id, batch_sha256, beacon.network, beacon.round, signature])


def qualifying_seed(suite: str, agent_version_id: str, block_hash: str) -> str:
    """The seed of an agent's variants (`problems.suites`), hex: one for all validators, another for every
    agent.

    `block_hash` is that of the finalized block `qualifying.variant_blocks` after the commitment's, which nobody knew
    when the agent was committed. A hash stays readable when a node has pruned the state of its block.
    """
    return content_hash([_VARIANT_DOMAIN, suite, agent_version_id, block_hash.lower().removeprefix("0x")])


def draw_problems(seed: str, problem_ids: Iterable[str], count: int) -> tuple[str, ...]:
    """`count` distinct problems in drawn order, whatever order they come in.

    Raises ValueError when an id stands twice or there are fewer than `count`.
    """
    ids = list(problem_ids)
    if len(set(ids)) != len(ids):
        raise ValueError("a problem stands twice in the batch")
    if len(ids) < count:
        raise ValueError(f"the batch holds {len(ids)} problems, {count} are to be drawn")
    return tuple(sorted(ids, key=lambda problem_id: (seeded_order(seed, "draw", problem_id), problem_id))[:count])


def seeded_order(seed: str, purpose: str, *parts: str) -> bytes:
    """The sort key of something under a seed: HMAC-SHA256 over purpose and parts, unambiguously joined."""
    return hmac.digest(bytes.fromhex(seed), canonical_bytes([purpose, *parts]), "sha256")


_QUALIFYING_DOMAIN = b"agent-arena/qualifying/1\n"


def work_order(seed: str, agent_version_id: str, problem_id: str, validators: Iterable[str]) -> tuple[str, ...]:
    """Whose work a pair is, by HMAC(seed, agent, problem, hotkey): the first k are assigned, the others stand in, and
    results count in this order."""
    return tuple(
        sorted(
            set(validators),
            key=lambda hotkey: (seeded_order(seed, "assign", agent_version_id, problem_id, hotkey), hotkey),
        )
    )


def qualifying_order(agent_version_id: str, validators: Iterable[str]) -> tuple[str, ...]:
    """In which order validators qualify an agent: the first `validators_asked` are asked, the others stand in.

    The seed is the agent's id: it is known when the agent is, and a miner who picks an id for its validators must pick
    its source for it. AGREEMENT.md, "Work".
    """
    seed = hashlib.sha256(_QUALIFYING_DOMAIN + agent_version_id.encode()).hexdigest()
    return work_order(seed, agent_version_id, "", validators)


def is_work_due(
    order: tuple[str, ...], validator: str, asked: int, waited_ms: int, step_ms: int, done: Collection[str] = ()
) -> bool:
    """Whether a validator should do a piece of work now: at once when it is among the first `asked` of `order`; as the
    n-th stand-in once `n x step_ms` have passed and fewer of those before it than were asked (one at least) say that
    they are done.

    `done` are those that say so; nobody believes it further than this. False for one that is not in the order.
    """
    if validator not in order:
        return False
    place = order.index(validator)
    if place < asked:
        return True
    before = sum(other in done for other in order[:place])
    return before < max(1, asked) and waited_ms >= step_ms * (place - asked + 1)


def permitted_validators(metagraph: Metagraph) -> tuple[str, ...]:
    """Hotkeys that hold a validator permit, sorted."""
    return tuple(sorted(neuron.hotkey for neuron in metagraph.neurons if neuron.has_validator_permit))


class QualifyingResult(msgspec.Struct, frozen=True, kw_only=True):
    """One validator's score on one problem of the suite. None: the problem was withdrawn, nobody is charged."""

    validator: str
    problem_id: str
    score_e4: int | None


class SuiteEnd(msgspec.Struct, frozen=True):
    """How an agent's suite ended at a validator. `mean_e4`: of what is left of it, rounded down, in ten-thousandths;
    None where the end was certain before the last problem."""

    is_passed: bool
    mean_e4: int | None = None


def suite_ends(results: Iterable[QualifyingResult], problem_ids: Iterable[str], policy: Policy) -> dict[str, SuiteEnd]:
    """By validator that is through with an agent's suite: how it ended.

    The first result per (validator, problem) counts; results for other problems are ignored. A validator for whom more
    than `race.cancel_void_e4` of the suite is withdrawn has not finished. Under a policy that bounds the suite's time
    it ends once the bar is reached if all that is left scores 0, or missed if all of it scores 1.
    """
    suite, rules = frozenset(problem_ids), policy.qualifying
    by_validator: dict[str, dict[str, int | None]] = {}
    for result in results:
        if result.problem_id in suite:
            by_validator.setdefault(result.validator, {}).setdefault(result.problem_id, result.score_e4)
    ends = {}
    for validator, scores in by_validator.items():
        counted = [score for score in scores.values() if score is not None]
        is_left = (len(scores) - len(counted)) * UNIT_E4 <= policy.race.cancel_void_e4 * len(suite)
        if not counted or not is_left:
            continue
        open_problems, total = len(suite) - len(scores), sum(counted)
        needed = rules.score_min_e4 * (len(counted) + open_problems)
        if not open_problems:
            ends[validator] = SuiteEnd(total >= needed, total // len(counted))
        elif rules.worker_ms and (total >= needed or total + UNIT_E4 * open_problems < needed):
            ends[validator] = SuiteEnd(total >= needed)
    return ends
