"""The draw: which sealed problems a race runs, from a public beacon that nobody could know at the close.

seed = sha256 over (domain, race id, batch root, beacon network, round, signature); problems are ordered by
HMAC-SHA256(seed, id). Everything is recomputable from public values; without the beacon's signature nothing is.
Source: docs/architecture.md#the-mechanism (no secret to withhold); compare SN15's validator.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from arena.chain.port import BeaconRound
from foundation.canonical import canonical_bytes, content_hash

_SEED_DOMAIN = "agent-arena/race-seed/1"
_VARIANT_DOMAIN = "agent-arena/qualifying-seed/1"


def race_seed(race_id: str, batch_sha256: str, beacon: BeaconRound) -> str:
    """The seed of a race, hex. `beacon` must be verified by the caller; its signature is compared as lower-case hex."""
    signature = bytes.fromhex(beacon.signature).hex()
    return hashlib.sha256(
        canonical_bytes([_SEED_DOMAIN, race_id, batch_sha256, beacon.network, beacon.round, signature])
    ).hexdigest()


def qualifying_seed(suite: str, agent_version_id: str, block_hash: str) -> str:
    """The seed of an agent's variants (`problems.suites.variants`), hex: one for all validators, another for every
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
