"""A stock of one's own: problem files waiting for a race, and the batch sealed from them for every race.

Whoever runs this bank can read its problems at any time: it is for a validator that is its own operator, for the local
network and for tests. `sealed_stock` is the bank that nobody can read early.

A race gets one batch, and asking again gives the same one; a stock file serves one drawn race only, whatever
was killed in between, because what is used follows from the batches that exist. A race costs the same however many came
before it: `file_index` remembers what they held. Problems are in a batch in the order of their random ids, which says
nothing of their buckets. Randomness comes from the caller. Folder: `stock-*.jsonl` (problems, one a line), `<race
id>.batch.json` (with salt and answers), `index.jsonl`; readable by their owner only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from arena.bank.batches.batch import SALT_BYTES, KeptBatch, SealedBatch, read_batch, seal, write_batch
from arena.bank.partition_file import PoolAssignment, unpartitioned
from arena.bank.stock.file_index import FileIndex, Held, IndexedFile
from arena.bank.stock.level import StockLevel, measure_level
from arena.chain.port import BeaconRound
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from problems.model import Problem
from problems.scoring.title_matching import AcceptedTitles
from problems.suites.formats import read_problems, write_problems

_BATCH = ".batch.json"


class BatchStock:
    """The bank of one validator, in one folder."""

    def __init__(
        self,
        folder: Path,
        random_bytes: Callable[[int], bytes],
        replenish: Callable[[frozenset[str]], Sequence[Problem]] | None = None,
        assign: Callable[[Sequence[Problem]], PoolAssignment] | None = None,
        titles_of: Callable[[Sequence[Problem]], AcceptedTitles | None] | None = None,
    ) -> None:
        """`replenish` makes problems for one more race when the stock is empty, none of whose answers may be among the
        product ids it is given (the answers of earlier batches). A real bank has none. `assign` says which pool and
        cluster each problem belongs to; without it every problem is `train`. `titles_of` gives the accepted titles of a
        batch's problems, which go inside it; without it, or where it has none, the node's own matcher scores them."""
        self._folder = folder
        self._random_bytes = random_bytes
        self._replenish = replenish
        self._assign = assign
        self._titles_of = titles_of
        self._index = FileIndex(folder, self._describe)
        self._kept = KeptBatch()

    def add(self, name: str, problems: Sequence[Problem]) -> Path:
        """Put problems for one race into the stock, as `stock-<name>.jsonl`, mode 0600.

        Raises ArenaError V2064 when the folder can't be written.
        """
        path = self._folder / f"stock-{name}.jsonl"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, "".join(f"{line}\n" for line in write_problems(problems)).encode(), mode=0o600)
        except OSError as error:
            raise ArenaError("V2064", f"{path}: {error.strerror or error}") from error
        return path

    def waiting(self, undrawn: Collection[str] = ()) -> int:
        """How many races the stock can still serve."""
        return len(self._waiting_files(undrawn))

    def level(self, closes_ms: Sequence[int], now_ms: int, undrawn: Collection[str] = ()) -> StockLevel:
        """How long the stock lasts; a file is as old as its last change. Raises as `waiting` does."""
        files = self._waiting_files(undrawn)
        made_ms = [file.changed_ns // 1_000_000 for file in files]
        served = [number < len(files) for number in range(len(closes_ms))]
        return measure_level(served, closes_ms, now_ms, made_ms, is_made_here=self._replenish is not None)

    def batch(self, race_id: str) -> SealedBatch:
        """The sealed batch of a race. Raises ArenaError P4001 when there is none, P4010 when it was edited."""
        return self._kept.read(self._batch_file(race_id))

    def serves(self, batch_sha256: str, round_number: int) -> bool:
        """Always: these problems are no more secret before a round than after it."""
        return True

    def open(self, race_id: str, beacon_round: BeaconRound) -> None:
        """Nothing to do: the batch lies open from its sealing."""

    def seal_for(
        self, race_id: str, problems_min: int, undrawn: Collection[str] = (), *, round_number: int = 0
    ) -> SealedBatch:
        """The race's batch: the one it has, or the first unused stock file of at least `problems_min`, sealed.

        `undrawn` names earlier races that ended before their draw: nobody saw their problems, which may be sealed
        again, under a new salt. The round changes nothing here. Raises ArenaError P4014 when the stock is empty, P4015
        when all that is left holds too few problems, P4001 to P4007 for an unsound file, what `titles_of` raises, V2064
        when the folder can't be written.
        """
        if self._batch_file(race_id).exists():
            return self.batch(race_id)
        used = self._used_ids(undrawn)
        too_small = ""
        for file in self._stock_files():
            if not used.isdisjoint(file.held.problem_ids):
                continue
            path = self._folder / file.name
            assigned = self._assigned(self._read(path))
            if len(assigned.problems) >= problems_min:
                return self._seal(race_id, assigned)
            too_small = f"{path} holds {len(assigned.problems)} problems, a race draws {problems_min}"
        if too_small:
            raise ArenaError("P4015", too_small)
        if self._replenish is None:
            raise ArenaError("P4014", str(self._folder))
        made = self._replenish(
            frozenset(product_id for file in self._batches() for product_id in file.held.product_ids)
        )
        assigned = self._assigned(made)
        if len(assigned.problems) < problems_min:
            raise ArenaError("P4015", f"{len(made)} problems were made for {race_id}, a race draws {problems_min}")
        self.add(race_id, made)
        return self._seal(race_id, assigned)

    def _assigned(self, problems: Sequence[Problem]) -> PoolAssignment:
        """The problems that may be raced, with their pools and clusters, in the order of their ids."""
        ordered = sorted(problems, key=lambda problem: problem.problem_id)
        return self._assign(ordered) if self._assign else unpartitioned(ordered)

    def _seal(self, race_id: str, assigned: PoolAssignment) -> SealedBatch:
        batch = seal(
            race_id,
            assigned.problems,
            self._random_bytes(SALT_BYTES),
            pools=assigned.pools,
            cluster_ids=assigned.cluster_ids,
            partition_sha256=assigned.partition_sha256,
            titles=self._titles_of(assigned.problems) if self._titles_of else None,
        )
        path = self._batch_file(race_id)
        try:
            write_batch(path, batch)
        except OSError as error:
            raise ArenaError("V2064", f"{path}: {error.strerror or error}") from error
        return batch

    def _batch_file(self, race_id: str) -> Path:
        return self._folder / f"{race_id}{_BATCH}"

    def _waiting_files(self, undrawn: Collection[str]) -> list[IndexedFile]:
        used = self._used_ids(undrawn)
        return [file for file in self._stock_files() if used.isdisjoint(file.held.problem_ids)]

    def _stock_files(self) -> list[IndexedFile]:
        return self._index.files("stock-*.jsonl")

    def _batches(self) -> list[IndexedFile]:
        return self._index.files(f"*{_BATCH}")

    def _describe(self, path: Path) -> Held:
        """What is in a batch or stock file."""
        if path.name.endswith(_BATCH):
            batch = read_batch(path)
            race_id, problems = batch.race_id, batch.problems
        else:
            race_id, problems = "", self._read(path)
        return Held(
            race_id=race_id,
            problem_ids=tuple(problem.problem_id for problem in problems),
            product_ids=tuple(reward.product_id for problem in problems for reward in problem.rewards),
        )

    def _read(self, path: Path) -> tuple[Problem, ...]:
        try:
            with path.open(encoding="utf-8") as lines:
                return read_problems(lines)
        except (OSError, UnicodeError) as error:
            raise ArenaError("P4001", f"{path}: {error}") from error

    def _used_ids(self, undrawn: Collection[str]) -> frozenset[str]:
        drawn = (file.held for file in self._batches() if file.held.race_id not in undrawn)
        return frozenset(problem_id for held in drawn for problem_id in held.problem_ids)
