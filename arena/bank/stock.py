"""The stock of the bank: problem files waiting for a race, and the sealed batch of every race.

Promise: a race gets one batch, and asking again gives the same one; a stock file serves one drawn race only, whatever
was killed in between, because what is used follows from the batches that exist. Randomness comes from the caller.
Folder: `stock-*.jsonl` (problems, one a line), `<race id>.batch.json` (sealed, readable by its owner only).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from arena.bank.batch import SALT_BYTES, SealedBatch, seal
from arena.bank.batch_file import read_batch, write_batch
from problems.errors import ArenaError
from problems.model import Problem
from problems.suites import read_problems, write_problems


class BatchStock:
    """The bank of one validator, in one folder."""

    def __init__(
        self,
        folder: Path,
        random_bytes: Callable[[int], bytes],
        replenish: Callable[[frozenset[str]], Sequence[Problem]] | None = None,
    ) -> None:
        """`replenish` makes problems for one more race when the stock is empty, none of whose answers may be among the
        product ids it is given (the answers of earlier batches). A real bank has none."""
        self._folder = folder
        self._random_bytes = random_bytes
        self._replenish = replenish

    def add(self, name: str, problems: Sequence[Problem]) -> Path:
        """Put problems for one race into the stock, as `stock-<name>.jsonl`, mode 0600.

        Raises ArenaError V2064 when the folder can't be written.
        """
        path = self._folder / f"stock-{name}.jsonl"
        draft = path.with_suffix(".draft")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft.touch(mode=0o600)
            draft.write_text("".join(f"{line}\n" for line in write_problems(problems)), encoding="utf-8")
            draft.replace(path)
        except OSError as error:
            raise ArenaError("V2064", f"{path}: {error.strerror or error}") from error
        return path

    def waiting(self, undrawn: Collection[str] = ()) -> int:
        """How many races the stock can still serve."""
        used = self._used_ids(undrawn)
        return sum(1 for problems in map(self._read, self._stock_files()) if not used & _ids(problems))

    def batch(self, race_id: str) -> SealedBatch:
        """The sealed batch of a race. Raises ArenaError P4001 when there is none, P4010 when it was edited."""
        return read_batch(self._batch_file(race_id))

    def seal_for(self, race_id: str, problems_min: int, undrawn: Collection[str] = ()) -> SealedBatch:
        """The race's batch: the one it has, or the first unused stock file of at least `problems_min`, sealed.

        `undrawn` names earlier races that ended before their draw: nobody saw their problems, which may be sealed
        again, under a new salt. Raises ArenaError P4014 when the stock is empty, P4015 when all that is left holds too
        few problems, P4001 to P4007 for an unsound file, V2064 when the folder can't be written.
        """
        if self._batch_file(race_id).exists():
            return self.batch(race_id)
        used = self._used_ids(undrawn)
        too_small = ""
        for path in self._stock_files():
            problems = self._read(path)
            if used & _ids(problems):
                continue
            if len(problems) >= problems_min:
                return self._seal(race_id, problems)
            too_small = f"{path} holds {len(problems)} problems, a race draws {problems_min}"
        if too_small:
            raise ArenaError("P4015", too_small)
        if self._replenish is None:
            raise ArenaError("P4014", str(self._folder))
        made = self._replenish(frozenset(self._answers()))
        if len(made) < problems_min:
            raise ArenaError("P4015", f"{len(made)} problems were made for {race_id}, a race draws {problems_min}")
        self.add(race_id, made)
        return self._seal(race_id, made)

    def _seal(self, race_id: str, problems: Sequence[Problem]) -> SealedBatch:
        batch = seal(race_id, problems, self._random_bytes(SALT_BYTES))
        path = self._batch_file(race_id)
        try:
            write_batch(path, batch)
        except OSError as error:
            raise ArenaError("V2064", f"{path}: {error.strerror or error}") from error
        return batch

    def _batch_file(self, race_id: str) -> Path:
        return self._folder / f"{race_id}.batch.json"

    def _stock_files(self) -> list[Path]:
        return sorted(self._folder.glob("stock-*.jsonl"))

    def _read(self, path: Path) -> tuple[Problem, ...]:
        try:
            with path.open(encoding="utf-8") as lines:
                return read_problems(lines)
        except (OSError, UnicodeError) as error:
            raise ArenaError("P4001", f"{path}: {error}") from error

    def _used_ids(self, undrawn: Collection[str]) -> frozenset[str]:
        drawn = (batch for batch in self._batches() if batch.race_id not in undrawn)
        return frozenset(problem_id for batch in drawn for problem_id in batch.problem_ids)

    def _answers(self) -> Iterator[str]:
        for batch in self._batches():
            yield from (reward.product_id for problem in batch.problems for reward in problem.rewards)

    def _batches(self) -> Iterator[SealedBatch]:
        return (read_batch(path) for path in self._folder.glob("*.batch.json"))


def _ids(problems: Sequence[Problem]) -> frozenset[str]:
    return frozenset(problem.problem_id for problem in problems)
