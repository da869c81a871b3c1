"""Sealing ahead: an operator's problems dealt to the coming races, each batch locked to the round after its close.

Every batch has the same mix of buckets, whatever order the problems came in; no problem goes into two batches;
a batch is named after its race's close, since every node counts its own races. Clock, randomness and ports come from
the caller. What was left over, and what the partition refused, stays with the operator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from arena.bank.batches.batch import SALT_BYTES, seal
from arena.bank.batches.sealed_file import SealedFile, lock_batch
from arena.bank.partition_file import PoolAssignment
from arena.chain.port import Beacon, Signer, Timelock
from foundation.errors import ArenaError
from problems.model import BUCKETS
from problems.scoring.title_matching import AcceptedTitles, cut_titles


class Dealt(msgspec.Struct, frozen=True, kw_only=True):
    """The problems of one coming race, with pools and clusters, in the order of their public ids."""

    closes_ms: int
    assigned: PoolAssignment


def deal(
    assigned: PoolAssignment, closes_ms: Sequence[int], size: int, used_ids: Collection[str] = ()
) -> tuple[Dealt, ...]:
    """`size` problems for the race of each close. Those whose public ids are in `used_ids` were sealed before, and are
    passed over.

    Raises ArenaError P4015 when there are too few problems left, P4007 when two share an id.
    """
    rows = sorted(
        (
            row
            for row in zip(assigned.problems, assigned.pools, assigned.cluster_ids, strict=True)
            if row[0].problem_id not in used_ids
        ),
        key=lambda row: row[0].problem_id,
    )
    for before, after in itertools.pairwise(rows):
        if before[0].problem_id == after[0].problem_id:
            raise ArenaError("P4007", after[0].problem_id)
    races = len(closes_ms)
    if len(rows) < races * size:
        left = f"{len(rows)} problems are left to race, {races} races take {races * size}"
        raise ArenaError("P4015", f"{left}; they make {len(rows) // size} batches of {size}")
    by_bucket = [row for bucket in BUCKETS for row in rows if row[0].bucket == bucket]
    made = []
    for number, close_ms in enumerate(closes_ms):
        hand = sorted(by_bucket[number::races][:size], key=lambda row: row[0].problem_id)
        made.append(
            Dealt(
                closes_ms=close_ms,
                assigned=PoolAssignment(
                    problems=tuple(problem for problem, _, _ in hand),
                    pools=tuple(pool for _, pool, _ in hand),
                    cluster_ids=tuple(cluster for _, _, cluster in hand),
                    partition_sha256=assigned.partition_sha256,
                ),
            )
        )
    return tuple(made)


def lock_all(
    dealt: Sequence[Dealt],
    *,
    timelock: Timelock,
    beacon: Beacon,
    signer: Signer,
    random_bytes: Callable[[int], bytes],
    now_ms: Callable[[], int],
    titles: AcceptedTitles | None = None,
) -> Iterator[SealedFile]:
    """Each batch under a salt of its own, sealed to the first round after its race's close, and signed.

    Of `titles` each batch takes those of its own problems inside. Raises ArenaError P4012 when one is missing.
    """
    for one in dealt:
        batch = seal(
            race_named(one.closes_ms),
            one.assigned.problems,
            random_bytes(SALT_BYTES),
            pools=one.assigned.pools,
            cluster_ids=one.assigned.cluster_ids,
            partition_sha256=one.assigned.partition_sha256,
            titles=cut_titles(titles, one.assigned.problems) if titles else None,
        )
        opens_with = beacon.round_after(one.closes_ms)
        yield lock_batch(batch, opens_with, timelock=timelock, signer=signer, made_ms=now_ms())


def race_named(closes_ms: int) -> str:
    """The bank's name for the race that closes then (unix milliseconds): `close-20261201T200000Z`."""
    return datetime.fromtimestamp(closes_ms / 1_000, UTC).strftime("close-%Y%m%dT%H%M%SZ")
