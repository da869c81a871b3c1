"""The sealed batch: the problems of one race, and commitments to them that give nothing away.

Promise: every published figure here is an HMAC under a salt of 32 random bytes, so neither an answer nor a cluster can
be found by hashing the public catalogue; whoever gets the salt at release can check each of them. Randomness and time
come from the caller. DESIGN section 5.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import msgspec

from arena.records.model import ReleasedProblem
from problems.canonical import canonical_bytes
from problems.clusters import cluster_id
from problems.errors import ArenaError
from problems.model import Pool, Problem
from problems.soundness import check_problem
from problems.suites import problem_bytes

SALT_BYTES = 32


class SealedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The problems of one race. Make it with `seal`. It belongs to that race alone and is burnt whole after it."""

    race_id: str
    problems: tuple[Problem, ...]
    pools: tuple[Pool, ...]  # of each problem, under the partition manifest of `partition_sha256`
    partition_sha256: str = ""
    salt: str  # 32 bytes, hex

    @property
    def released_problems(self) -> tuple[ReleasedProblem, ...]:
        """What the race's release record says of them, in batch order."""
        return tuple(
            ReleasedProblem(problem_id=problem.problem_id, pool=pool, cluster_id=cluster_id(problem))
            for problem, pool in zip(self.problems, self.pools, strict=True)
        )

    @property
    def problem_ids(self) -> tuple[str, ...]:
        """Public ids in batch order."""
        return tuple(problem.problem_id for problem in self.problems)

    @property
    def batch_sha256(self) -> str:
        """Keyed commitment (hex) to the race and to every problem with its answer, in order."""
        leaves = [commitment(self.salt, _labelled("problem", problem_bytes(problem))) for problem in self.problems]
        root = canonical_bytes({"race_id": self.race_id, "problems": leaves})
        return commitment(self.salt, _labelled("batch", root))

    @property
    def cluster_commitments(self) -> dict[str, str]:
        """Per public problem id, a keyed commitment (hex) to its leak cluster; equal clusters do not look equal."""
        return {
            problem.problem_id: commitment(
                self.salt, _labelled("cluster", f"{problem.problem_id}\n{cluster_id(problem)}".encode())
            )
            for problem in self.problems
        }

    def problem(self, problem_id: str) -> Problem:
        """The problem with that public id. Raises KeyError when the batch has none."""
        for problem in self.problems:
            if problem.problem_id == problem_id:
                return problem
        raise KeyError(problem_id)


def seal(
    race_id: str,
    problems: Sequence[Problem],
    salt: bytes,
    *,
    pools: Sequence[Pool] = (),
    partition_sha256: str = "",
) -> SealedBatch:
    """A batch for one race. `salt` is 32 random bytes, fresh for each batch; without `pools` every problem is `train`.

    Raises ArenaError P4002 to P4004 for an unsound problem, P4007 when two problems share an id, ValueError for a salt
    of another length.
    """
    if len(salt) != SALT_BYTES:
        raise ValueError(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
    seen: set[str] = set()
    for problem in problems:
        check_problem(problem)
        if problem.problem_id in seen:
            raise ArenaError("P4007", problem.problem_id)
        seen.add(problem.problem_id)
    everything: tuple[Pool, ...] = ("train",) * len(problems)
    return SealedBatch(
        race_id=race_id,
        problems=tuple(problems),
        pools=tuple(pools) or everything,
        partition_sha256=partition_sha256,
        salt=salt.hex(),
    )


def commitment(salt: str, text: str) -> str:
    """HMAC-SHA256 (hex) of `text` under the hex salt: public before release, checkable after it."""
    return hmac.new(bytes.fromhex(salt), text.encode(), hashlib.sha256).hexdigest()


def _labelled(label: str, content: bytes) -> str:
    """The text that is committed to; the label keeps a problem's commitment from passing for a cluster's."""
    return f"agent-arena/{label}/1\n{hashlib.sha256(content).hexdigest()}"
