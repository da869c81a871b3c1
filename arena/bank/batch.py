"""The sealed batch: the problems of one race, commitments to them that give nothing away, and its file.

Every published figure here is an HMAC under a salt of 32 random bytes, so neither an answer nor a cluster can
be found by hashing the public catalogue; a holder of the salt can check each of them after the release. Randomness and
time come from the caller. Why commitments are keyed: docs/architecture.md#problems-and-pools.

The file holds the open batch, readable by its owner only. A file in which any byte was changed is refused (P4001,
P4010), since it must be written exactly as we write it. The hash inside finds accidents; whether this is the batch a
race committed to follows from a comparison with the race's opening.
"""

from __future__ import annotations

import functools
import hmac
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from arena.bank.signed import read_file
from arena.records.log import cluster_commitment, commitment
from arena.records.model import EvaluationRecord, ReleasedProblem, ReleaseRecord
from foundation.canonical import UNREADABLE_JSON, canonical_bytes
from foundation.durable_files import coded, write_whole
from foundation.errors import ArenaError
from problems.clusters import cluster_id
from problems.formats import problem_bytes
from problems.model import Axis, OutcomeScore, Pool, Problem, check_problem
from problems.score import Constraint, ConstraintAxis, ProductOf, explain_outcome
from problems.titles import MATCHERS, AcceptedTitles, TitleMatcher, encode_accepted, reward_titles

SALT_BYTES = 32
BATCH_SUFFIX = ".batch.json"


class SealedProblem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A problem of a sealed batch as it may be named before its release."""

    problem_id: str
    cluster_commitment: str = ""  # keyed HMAC (hex) to its leak cluster, opened at release


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The sealed batch of one race, by root: what may be said of it before its release. It belongs to this race alone
    and is burnt whole after it."""

    batch_sha256: str
    partition_sha256: str = ""
    problems: tuple[SealedProblem, ...]


class OpenBatch(msgspec.Struct, frozen=True, kw_only=True):
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
    def batch_sha256(self) -> str:
        """Keyed commitment (hex) to the race, the partition, the accepted titles and every problem with its answer,
        pool and cluster, in order."""
        leaves: list[str] = [
            commitment(self.salt, "problem", f"{pool}\n{cluster}\n".encode() + problem_bytes(problem))
            for problem, pool, cluster in zip(self.problems, self.pools, self.cluster_ids, strict=True)
        ]
        root: dict[str, str | list[str]] = {
            "race_id": self.race_id,
            "partition_sha256": self.partition_sha256,
            "problems": leaves,
        }
        if self.titles is not None:
            root["titles"] = commitment(self.salt, "titles", encode_accepted(self.titles))
        return commitment(self.salt, "batch", canonical_bytes(root))

    @property
    def public(self) -> Batch:
        """What may be said of it before its release; equal clusters do not look equal."""
        return Batch(
            batch_sha256=self.batch_sha256,
            partition_sha256=self.partition_sha256,
            problems=tuple(
                SealedProblem(
                    problem_id=problem.problem_id,
                    cluster_commitment=cluster_commitment(self.salt, problem.problem_id, cluster),
                )
                for problem, cluster in zip(self.problems, self.cluster_ids, strict=True)
            ),
        )


def seal(
    race_id: str,
    problems: Sequence[Problem],
    salt: bytes,
    *,
    pools: Sequence[Pool] = (),
    cluster_ids: Sequence[str] = (),
    partition_sha256: str = "",
    titles: AcceptedTitles | None = None,
) -> OpenBatch:
    """A batch for one race. `salt` is 32 random bytes, fresh for each batch.

    Pools and clusters are those of a partition manifest; without one every problem is `train`, and its cluster is the
    set of its own answers' product classes. `titles` lists the reward titles of these problems and no others, so that
    an opened batch says nothing of one that is still sealed (`problems.titles.cut_titles`).

    Raises ArenaError P4003 for an unsound problem, P4009 when two problems share an id, P4029 for one that is
    never to be raced, P4001 for titles of other problems or too few, ValueError for a salt of another length or another
    number of pools or clusters than of problems.
    """
    if len(salt) != SALT_BYTES:
        raise ValueError(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
    for problem in problems:
        check_problem(problem)
    batch = OpenBatch(
        race_id=race_id,
        problems=tuple(problems),
        pools=tuple(pools) or tuple[Pool, ...]("train" for _ in problems),
        cluster_ids=tuple(cluster_ids) or tuple(cluster_id(problem) for problem in problems),
        partition_sha256=partition_sha256,
        titles=titles,
        salt=salt.hex(),
    )
    if {len(batch.pools), len(batch.cluster_ids)} != {len(problems)}:
        raise ValueError(f"{len(problems)} problems, {len(batch.pools)} pools, {len(batch.cluster_ids)} clusters")
    seen: set[str] = set()
    for problem, pool in zip(problems, batch.pools, strict=True):
        if problem.problem_id in seen:
            raise ArenaError("P4009", problem.problem_id)
        if pool == "never_touch":
            raise ArenaError("P4029", f"{problem.problem_id} shares a cluster with a suite")
        seen.add(problem.problem_id)
    if titles is not None and (odd := reward_titles(problems) ^ titles.accepted.keys()):
        raise ArenaError("P4001", f"{race_id}: {titles.name} and the problems differ in the title {min(odd)!r}")
    return batch


class BatchFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file's shape."""

    version: Literal[1] = 1
    batch_sha256: str
    batch: OpenBatch


_ENCODER = msgspec.json.Encoder(order="deterministic")


def write_batch(path: Path, batch: OpenBatch) -> None:
    """Write the batch with mode 0600, whole or not at all. Raises OSError when the folder can't be written."""
    write_whole(path, encode_batch(batch), mode=0o600)


def read_batch(path: Path) -> OpenBatch:
    """The batch in a file. Raises ArenaError P4001 when it can't be read, and what `decode_batch` raises."""
    return decode_batch(read_file(path), str(path))


def encode_batch(batch: OpenBatch) -> bytes:
    """The batch as JSON, salt and answers included."""
    typed = msgspec.convert(msgspec.to_builtins(batch), OpenBatch)  # an amount given as an integer becomes a float
    return _ENCODER.encode(BatchFile(batch_sha256=batch.batch_sha256, batch=typed))


def decode_batch(content: bytes, place: str) -> OpenBatch:
    """The batch in these bytes; `place` names them in errors.

    Raises ArenaError P4001 for bytes that are no JSON, P4010 for another shape, spelling or hash, and what `seal`
    raises for unsound problems and titles.
    """
    try:
        held = msgspec.json.decode(content, type=BatchFile)
    except msgspec.ValidationError as error:
        raise ArenaError("P4010", f"{place}: {error}") from error
    except UNREADABLE_JSON as error:
        raise ArenaError("P4001", f"{place}: {error}") from error
    given = held.batch
    try:
        batch = seal(
            given.race_id,
            given.problems,
            bytes.fromhex(given.salt),
            pools=given.pools,
            cluster_ids=given.cluster_ids,
            partition_sha256=given.partition_sha256,
            titles=given.titles,
        )
    except ValueError as error:
        raise ArenaError("P4010", f"{place}: {error}") from error
    if not hmac.compare_digest(batch.batch_sha256, held.batch_sha256):
        raise ArenaError("P4010", f"{place}: {batch.batch_sha256[:12]}… is not {held.batch_sha256[:12]}…")
    if encode_batch(batch) != content:
        raise ArenaError("P4010", f"{place}: it was written again by another program")
    return batch


def read_kept(path: Path) -> OpenBatch:
    """As `read_batch`, at the cost of a look at the file while it stays as it was: every episode of a race asks for its
    batch, and reading one checks every problem and hash in it. Safe to use from several threads."""
    with coded(path, "P4001"):
        now = path.stat()
    # the clock of a user can't set the change of status back
    return _read_once(path, (now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns))


@functools.lru_cache(maxsize=2)  # the race that runs, and one that people look at
def _read_once(path: Path, stamp: tuple[int, ...]) -> OpenBatch:
    return read_batch(path)


Answer = Literal["kept", "broken", "unknown"]


class Disclosure(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check. `broken`: the problems whose cluster is not the one that was committed to; `batch` is
    unknown where the batch's problems are not at hand."""

    record: ReleaseRecord
    broken: tuple[str, ...]
    batch: Answer
    faults: tuple[str, ...]

    @property
    def is_ok(self) -> bool:
        """True when nothing that could be checked is broken."""
        return not self.faults


def check_release(record: ReleaseRecord, opened: Batch, batch: OpenBatch | None = None) -> Disclosure:
    """The record against what the race opened with, and against the batch where that is at hand."""
    committed = {problem.problem_id: problem.cluster_commitment for problem in opened.problems}
    broken = []
    for problem in record.problems:
        try:
            shown = cluster_commitment(record.salt, problem.problem_id, problem.cluster_id)
        except ValueError:  # a malformed salt opens nothing
            shown = "-"
        if not hmac.compare_digest(committed.get(problem.problem_id, ""), shown):
            broken.append(problem.problem_id)
    faults = [f"{problem_id}: the cluster is not the one committed to" for problem_id in broken]
    if [problem.problem_id for problem in record.problems] != list(committed):
        faults.append("the released problems are not those of the batch, in its order")
    if record.batch_sha256 != opened.batch_sha256:
        faults.append("the released batch is not the one the race opened with")
    if record.partition_sha256 != opened.partition_sha256:
        faults.append("the partition is not the one the race opened with")
    answer: Answer = "unknown"
    if batch is not None:
        kept = {
            "the batch's problems and answers": batch.batch_sha256 == opened.batch_sha256,
            "the batch's salt": batch.salt == record.salt,
            "the batch's pools and clusters": batch.released_problems == record.problems,
        }
        faults += [f"{name} are not what was committed to" for name, is_kept in kept.items() if not is_kept]
        answer = "kept" if all(kept.values()) else "broken"
    return Disclosure(record=record, broken=tuple(broken), batch=answer, faults=tuple(faults))


class AcceptedProduct(msgspec.Struct, frozen=True, kw_only=True):
    """A product that the rule accepts in a slot, counted from 1: the problem's own answer, or another that an agent
    recommended and that meets all that is asked."""

    slot: int
    product_id: str
    title: str
    price: str
    is_answer: bool


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a problem asked, and what one result had. `accepted`: the answers, and what this result recommended besides
    that counts in full; other products of the catalogue may count, too."""

    constraints: tuple[Constraint, ...] = ()
    accepted: tuple[AcceptedProduct, ...] = ()


NOTHING = Explanation()
Explain = Callable[[EvaluationRecord, str], Explanation]  # of a record, over the catalogue of that hash


class BatchExplainer:
    """Explains results on raced problems. `folder` holds `RACE.batch.json`; `products_of` gives the products of the
    catalogue with a hash, None where it is not here. Safe to use from several threads."""

    def __init__(self, folder: Path, products_of: Callable[[str], ProductOf | None]) -> None:
        self._folder, self._products_of = folder, products_of
        self._lock = threading.Lock()

    def explain(self, record: EvaluationRecord, catalogue_sha256: str) -> Explanation:
        """Every constraint of the record's problem with both values, and what is accepted; empty where that is not
        known here."""
        context, outcome = record.context, record.outcome
        if context.stage != "race" or not isinstance(outcome, OutcomeScore):
            return NOTHING
        try:
            with self._lock:
                batch = read_kept(self._folder / f"{context.race_id}{BATCH_SUFFIX}")
                product_of = self._products_of(catalogue_sha256)
            if product_of is None or batch.batch_sha256 != context.batch_sha256:
                return NOTHING
            titles: TitleMatcher | None = batch.titles or MATCHERS.get(outcome.titles)
            if titles is None or titles.name != outcome.titles:
                return NOTHING
            problem = {each.problem_id: each for each in batch.problems}[context.problem_id]
            found = explain_outcome(problem, outcome, product_of, titles)
            if not _says_the_same(found, outcome):
                return NOTHING
            accepted = []
            for number, (item, slot) in enumerate(zip(problem.rewards, outcome.slots, strict=True), 1):
                ids = [item.product_id]
                if slot.is_found and slot.recommended_id and slot.rule_hits == slot.rule_total:
                    ids.append(slot.recommended_id)
                accepted += [
                    AcceptedProduct(
                        slot=number,
                        product_id=product_id,
                        title=product.title,
                        price=f"{product.price:g} PHP",
                        is_answer=product_id == item.product_id,
                    )
                    for product_id in dict.fromkeys(ids)
                    if (product := product_of(product_id)) is not None
                ]
            return Explanation(constraints=found, accepted=tuple(accepted))
        except (ArenaError, KeyError, ValueError):  # no batch here, or one that is not this problem's
            return NOTHING


def _says_the_same(found: Sequence[Constraint], outcome: OutcomeScore) -> bool:
    """Whether on every axis of every product as many constraints are asked and met as the score counts."""
    asked = Counter((one.slot, one.axis) for one in found)
    met = Counter((one.slot, one.axis) for one in found if one.is_met)
    for number, slot in enumerate(outcome.slots, 1):
        for axis in get_args(ConstraintAxis):
            counted: Axis | None = getattr(slot, axis, None)
            if counted is None or (slot.is_found and slot.is_answer):
                continue
            if (met[number, axis], asked[number, axis]) != (counted.hits, counted.total):
                return False
    return True
