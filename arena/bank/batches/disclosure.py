"""Disclosure: what a race's release record opens, checked against what the race committed to when it opened.

Total and pure. With the record alone every cluster commitment is recomputed from the salt; with the batch's
problems too, the batch's own hash, pools, partition and ids. What the race's opening states is taken from the opening,
never from the record.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Literal

import msgspec

from arena.bank.batches.batch import SealedBatch, cluster_commitment
from arena.records.model import ReleaseRecord

Answer = Literal["kept", "broken", "unknown"]


class CheckedProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One released problem and whether its cluster is the one that was committed to."""

    problem_id: str
    pool: str
    cluster_id: str
    cluster: Answer


class Disclosure(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check. `batch` is unknown where the batch's problems are not at hand."""

    race_id: str
    batch_sha256: str
    partition_sha256: str
    salt: str
    problems: tuple[CheckedProblem, ...]
    batch: Answer
    faults: tuple[str, ...]

    @property
    def is_ok(self) -> bool:
        """True when nothing that could be checked is broken."""
        return not self.faults


def check_release(
    record: ReleaseRecord,
    *,
    batch_sha256: str,
    partition_sha256: str,
    commitments: Mapping[str, str],
    batch: SealedBatch | None = None,
) -> Disclosure:
    """The record against the opening's `batch_sha256`, `partition_sha256` and cluster `commitments` by problem id."""
    rows, faults = [], []
    for problem in record.problems:
        committed = commitments.get(problem.problem_id, "")
        try:
            opened = cluster_commitment(record.salt, problem.problem_id, problem.cluster_id)
        except ValueError:  # a salt that is no hex opens nothing
            opened = "-"
        is_kept = hmac.compare_digest(committed, opened)
        if not is_kept:
            faults.append(f"{problem.problem_id}: the cluster is not the one committed to")
        rows.append(
            CheckedProblem(
                problem_id=problem.problem_id,
                pool=problem.pool,
                cluster_id=problem.cluster_id,
                cluster="kept" if is_kept else "broken",
            )
        )
    if [row.problem_id for row in rows] != list(commitments):
        faults.append("the released problems are not those of the batch, in its order")
    if record.batch_sha256 != batch_sha256:
        faults.append("the released batch is not the one the race opened with")
    if record.partition_sha256 != partition_sha256:
        faults.append("the partition is not the one the race opened with")
    answer: Answer = "unknown"
    if batch is not None:
        kept = {
            "the batch's problems and answers": batch.batch_sha256 == batch_sha256,
            "the batch's salt": batch.salt == record.salt,
            "the batch's pools and clusters": batch.released_problems == record.problems,
        }
        faults += [f"{name} are not what was committed to" for name, is_kept in kept.items() if not is_kept]
        answer = "kept" if all(kept.values()) else "broken"
    return Disclosure(
        race_id=record.race_id,
        batch_sha256=batch_sha256,
        partition_sha256=partition_sha256,
        salt=record.salt,
        problems=tuple(rows),
        batch=answer,
        faults=tuple(faults),
    )
