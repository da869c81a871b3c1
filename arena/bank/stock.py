"""The bank of one node: a folder of sealed batches, those that were opened, and how long the rest lasts.

A race takes the one file of the round after its close, signed by the bank's key, and opens it with that round. On the
local network a node makes the file itself when there is none, and seals it as an operator would.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import replace

from arena.bank.batch import BATCH_SUFFIX, BatchFile, OpenBatch, read_kept, write_batch
from arena.bank.sealing import BatchNotice, SealedFile, open_batch, read_sealed, write_sealed
from arena.chain.port import Beacon, BeaconRound, Timelock, Verifier
from foundation.canonical import UNREADABLE_JSON
from foundation.durable_files import coded
from foundation.errors import ArenaError
from problems.formats import problem_bytes
from problems.model import Problem

HORIZON_RACES = 400  # how far ahead a stock is measured
SUFFIX = ".sealed.json"
Make = Callable[[str, int, frozenset[str]], SealedFile]  # for a race, of a round, without these product ids


class StockLevel(msgspec.Struct, frozen=True, kw_only=True):
    """What is in stock at one moment.

    `races` counts coming races that have a batch, `lasts_ms` is the time until the close of the first that has none.
    """

    races: int
    lasts_ms: int
    is_made_here: bool = False  # the bank makes problems when it is empty, and cannot run low


@dataclasses.dataclass(eq=False)
class Bank:
    """The batches in one folder of a node. Safe to use from several threads.

    `bank_hotkey` is the key that signs this subnet's batches; `timelock` goes with `beacon`. With `is_real` a batch
    that was sealed without a partition manifest serves no race, nor one without its accepted titles. `make` makes the
    batch of a round that has none, P4011 when the catalogue has no more; a real network's bank has none. `prepare` does
    once what it takes long for, before a race's close is set.
    """

    folder: Path
    bank_hotkey: str
    verify: Verifier
    timelock: Timelock
    beacon: Beacon
    is_real: bool = False
    make: Make | None = None
    prepare: Callable[[], object] = lambda: None

    def notice_for(self, race_id: str, problems_min: int, *, round_number: int) -> BatchNotice:
        """The notice of the batch that opens with that round, the first after the race's close; made where there is
        none and this bank makes its own.

        Raises ArenaError P4014 when there is no such file, or more than one; P4010 when the bank did not sign it; P4014
        when it was sealed without the partition or the titles it needs; P4014 when it holds too few problems; P4029
        when one of its ids stood in an earlier race's batch; P4011 when no more problems can be made; V2064 when the
        folder can't be written.
        """
        if self.make is not None and not any(label.round == round_number for _, label in self._labels()):
            problems = (problem for earlier in self._earlier() for problem in earlier.problems)
            answers = frozenset(reward.product_id for problem in problems for reward in problem.rewards)
            made = self.make(race_id, round_number, answers)
            self._write(self.folder / f"{made.notice.race_id}{SUFFIX}", lambda path: write_sealed(path, made))
        notice = self._file_for(round_number).notice
        named = f"{notice.race_id} of {notice.signer}"
        if self.is_real and not notice.partition_sha256:
            raise ArenaError("P4014", f"{named} names no partition manifest")
        if self.is_real and not notice.titles:
            raise ArenaError("P4014", f"{named} holds no accepted titles")
        if len(notice.problems) < problems_min:
            raise ArenaError("P4014", f"{named} holds {len(notice.problems)} problems, a race draws {problems_min}")
        ids = {problem.problem_id for problem in notice.problems}
        for earlier in self._earlier(besides=race_id):
            if shared := ids & {problem.problem_id for problem in earlier.problems}:
                raise ArenaError("P4029", f"{min(shared)} of {notice.race_id} was raced in {earlier.race_id}")
        return notice

    def open(self, race_id: str, beacon_round: BeaconRound) -> None:
        """Open the race's file with the round that its draw follows from, and keep what was in it. Opening twice is
        opening once.

        Raises ArenaError P4026, P4014, P4010 when the file does not open to what its notice says; P4029 when
        one of its problems was raced before under another id; V2064 when the folder can't be written.
        """
        path, sealed = self._batch_path(race_id), self._file_for(beacon_round.round)
        if path.exists() and read_kept(path).public == sealed.notice.batch:
            return  # another one is of a race that a restored store never heard of
        batch = open_batch(sealed, beacon_round, timelock=self.timelock)
        contents = {_content(problem): problem.problem_id for problem in batch.problems}
        for earlier in self._earlier(besides=race_id):
            if shared := contents.keys() & set(map(_content, earlier.problems)):
                again = min(contents[content] for content in shared)
                raise ArenaError("P4029", f"{again} of {batch.race_id} was raced in {earlier.race_id}")
        self._write(path, lambda path: write_batch(path, batch))

    def batch(self, race_id: str) -> OpenBatch:
        """The open batch of a race. Raises ArenaError P4001 before it was opened, P4010 when it was edited."""
        return read_kept(self._batch_path(race_id))

    def notices(self) -> tuple[BatchNotice, ...]:
        """The notices of every file here, soonest first. Raises ArenaError P4010 for one that the bank did not sign."""
        files = (read_sealed(path, self.bank_hotkey, self.verify) for path in self._paths())
        return tuple(sorted((file.notice for file in files), key=lambda notice: (notice.round, notice.race_id)))

    def level(self, closes_ms: Iterable[int], now_ms: int) -> StockLevel:
        """How long the stock lasts, by what the files say of themselves, given the closes of the races to come, soonest
        first, of which it looks at `HORIZON_RACES`. When each has a batch, it lasts until the last close."""
        rounds = {label.round for _, label in self._labels() if self.timelock.opens_ms(label.round) > now_ms}
        races, until_ms = 0, now_ms
        for close_ms in islice(closes_ms, HORIZON_RACES):
            until_ms = close_ms
            if self.beacon.round_after(close_ms) not in rounds:
                break
            races += 1
        return StockLevel(
            races=races,
            lasts_ms=max(0, until_ms - now_ms) if races else 0,
            is_made_here=self.make is not None,
        )

    def _file_for(self, round_number: int) -> SealedFile:
        """The one file of that round that the bank signed."""
        paths = [path for path, label in self._labels() if label.round == round_number]
        signed, refusal = [], None
        for path in paths:
            try:
                signed.append(read_sealed(path, self.bank_hotkey, self.verify))
            except ArenaError as error:
                refusal = error
        if refusal is not None and not signed:
            raise refusal
        if len(signed) != 1:
            names = ", ".join(path.name for path in paths) or f"no file in {self.folder}"
            raise ArenaError("P4014", f"round {round_number} of {self.beacon.network}: {names}")
        return signed[0]

    def _labels(self) -> Iterator[tuple[Path, BatchNotice]]:
        """Each file of this beacon with what it says of itself, unchecked; one that can't be read as a sealed file
        serves no race."""
        for path in self._paths():
            try:
                label = msgspec.json.decode(path.read_bytes(), type=SealedFile).notice
            except (OSError, *UNREADABLE_JSON):
                continue
            if label.network == self.beacon.network:
                yield path, label

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{SUFFIX}"))

    def _batch_path(self, race_id: str) -> Path:
        return self.folder / f"{race_id}{BATCH_SUFFIX}"

    def _write(self, path: Path, write: Callable[[Path], None]) -> None:
        with coded(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            write(path)

    def _earlier(self, besides: str = "") -> Iterator[OpenBatch]:
        """Earlier races' batches, their hashes unchecked: a reader that races one checks them. Raises ArenaError
        P4001 for one that can't be read."""
        for path in sorted(self.folder.glob(f"*{BATCH_SUFFIX}")):
            if path != self._batch_path(besides):
                with coded(path, "P4001"):
                    held = msgspec.json.decode(path.read_bytes(), type=BatchFile)
                yield held.batch


def _content(problem: Problem) -> str:
    """What a problem asks and answers, whatever its id."""
    return hashlib.sha256(problem_bytes(replace(problem, problem_id="-"))).hexdigest()
