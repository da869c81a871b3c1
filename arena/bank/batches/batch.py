"""The sealed batch: the problems of one race, and commitments to them that give nothing away.

Promise: every published figure here is an HMAC under a salt of 32 random bytes, so neither an answer nor a cluster can
be found by hashing the public catalogue; whoever gets the salt at release can check each of them. Randomness and time
come from the caller. Why commitments are keyed: docs/architecture.md#problems-and-pools.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import msgspec

from arena.records.model import ReleasedProblem
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from problems.model import Pool, Problem
from problems.pools.clusters import cluster_id
from problems.scoring.soundness import check_problem
from problems.scoring.title_matching import AcceptedTitles, encode_accepted, reward_titles
from problems.suites.formats import problem_bytes

SALT_BYTES = 32


class SealedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The problems of one race. Make it with `seal`. It belongs to that race alone and is burnt whole after it."""

    race_id: str
    problems: tuple[Problem, ...]
    pools: tuple[Pool, ...]  # of each problem, under the partition manifest of `partition_sha256`
    cluster_ids: tuple[str, ...]  # of each problem, under the same manifest
    partition_sha256: str = ""
    titles: AcceptedTitles | None = None  # of its problems' reward titles alone; None: the nodes' own matcher scores
    salt: str  # 32 bytes, hex

    @property
    def released_problems(self) -> tuple[ReleasedProblem, ...]:
        """What the race's release record says of them, in batch order."""
        return tuple(
            ReleasedProblem(problem_id=problem.problem_id, pool=pool, cluster_id=cluster)
            for problem, pool, cluster in zip(self.problems, self.pools, self.cluster_ids, strict=True)
        )

    @property
    def problem_ids(self) -> tuple[str, ...]:
        """Public ids in batch order."""
        return tuple(problem.problem_id for problem in self.problems)

    @property
    def batch_sha256(self) -> str:
        """Keyed commitment (hex) to the race, the partition, the accepted titles and every problem with its answer,
        pool and cluster, in order."""
        leaves: list[str] = [
            commitment(self.salt, _labelled("problem", f"{pool}\n{cluster}\n".encode() + problem_bytes(problem)))
            for problem, pool, cluster in zip(self.problems, self.pools, self.cluster_ids, strict=True)
        ]
        root: dict[str, str | list[str]] = {
            "race_id": self.race_id,
            "partition_sha256": self.partition_sha256,
            "problems": leaves,
        }
        if self.titles is not None:
            root["titles"] = commitment(self.salt, _labelled("titles", encode_accepted(self.titles)))
        return commitment(self.salt, _labelled("batch", canonical_bytes(root)))

    @property
    def cluster_commitments(self) -> dict[str, str]:
        """Per public problem id, a keyed commitment (hex) to its leak cluster; equal clusters do not look equal."""
        return {
            problem.problem_id: cluster_commitment(self.salt, problem.problem_id, cluster)
            for problem, cluster in zip(self.problems, self.cluster_ids, strict=True)
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
    cluster_ids: Sequence[str] = (),
    partition_sha256: str = "",
    titles: AcceptedTitles | None = None,
) -> SealedBatch:
    """A batch for one race. `salt` is 32 random bytes, fresh for each batch.

    Pools and clusters are those of a partition manifest; without one every problem is `train`, and its cluster is the
    set of its own answers' product classes. `titles` lists the reward titles of these problems and no others, so that
    an opened batch says nothing of one that is still sealed (`problems.scoring.title_matching.cut_titles`).

    Raises ArenaError P4002 to P4004 for an unsound problem, P4007 when two problems share an id, P4029 for one that is
    never to be raced, P4012 for titles of other problems or too few, ValueError for a salt of another length or another
    number of pools or clusters than of problems.
    """
    if len(salt) != SALT_BYTES:
        raise ValueError(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
    assigned = tuple(pools) or tuple[Pool, ...]("train" for _ in problems)
    if len(assigned) != len(problems):
        raise ValueError(f"{len(problems)} problems and {len(assigned)} pools")
    seen: set[str] = set()
    for problem, pool in zip(problems, assigned, strict=True):
        check_problem(problem)
        if problem.problem_id in seen:
            raise ArenaError("P4007", problem.problem_id)
        if pool == "never_touch":
            raise ArenaError("P4029", f"{problem.problem_id} shares a cluster with a suite")
        seen.add(problem.problem_id)
    if titles is not None and (odd := reward_titles(problems) ^ titles.accepted.keys()):
        raise ArenaError("P4012", f"{race_id}: {titles.name} and the problems differ in the title {min(odd)!r}")
    clusters = tuple(cluster_ids) or tuple(cluster_id(problem) for problem in problems)
    if len(clusters) != len(problems):
        raise ValueError(f"{len(problems)} problems and {len(clusters)} clusters")
    return SealedBatch(
        race_id=race_id,
        problems=tuple(problems),
        pools=assigned,
        cluster_ids=clusters,
        partition_sha256=partition_sha256,
        titles=titles,
        salt=salt.hex(),
    )


def cluster_commitment(salt: str, problem_id: str, cluster: str) -> str:
    """The commitment (hex) that says of a public problem which cluster it belongs to, once the salt is known."""
    return commitment(salt, _labelled("cluster", f"{problem_id}\n{cluster}".encode()))


def commitment(salt: str, text: str) -> str:
    """HMAC-SHA256 (hex) of `text` under the hex salt: public before release, checkable after it."""
    return hmac.new(bytes.fromhex(salt), text.encode(), hashlib.sha256).hexdigest()


def _labelled(label: str, content: bytes) -> str:
    """The text that is committed to; the label keeps a problem's commitment from passing for a cluster's."""
    return f"agent-arena/{label}/2\n{hashlib.sha256(content).hexdigest()}"
