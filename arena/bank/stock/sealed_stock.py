"""The stock of sealed batches: the operator's files, each of which opens with the round after one race's close.

A race gets the file of its round and no other, so two races never share one; a file that its bank did not sign
is never used; no problem of an earlier race comes back, neither by its id nor by its content; nothing is readable here
before its round, and a batch that was opened is kept for the race to finish with. Folder: `*.sealed.json` as they came,
under any name, and `<race id>.batch.json` once a race has opened its own (readable by its owner only).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from arena.bank.batches.batch import KeptBatch, SealedBatch, read_batch, write_batch
from arena.bank.batches.sealed_file import BatchNotice, SealedFile, open_batch, read_sealed
from arena.bank.stock.file_index import FileIndex, Held
from arena.bank.stock.level import StockLevel, measure_level
from arena.chain.port import Beacon, BeaconRound, Timelock, Verifier
from foundation.errors import ArenaError
from problems.model import Problem
from problems.suites.formats import problem_bytes

SUFFIX = ".sealed.json"


class SealedStock:
    """The operator's sealed batches in one folder of a node."""

    def __init__(
        self,
        folder: Path,
        bank_hotkey: str,
        verify: Verifier,
        timelock: Timelock,
        beacon: Beacon,
        *,
        is_partition_required: bool = False,
        are_titles_required: bool = False,
    ) -> None:
        """`bank_hotkey` is the key that signs this subnet's batches; `timelock` goes with `beacon`. With
        `is_partition_required` a batch that was sealed without a partition manifest serves no race, with
        `are_titles_required` none without its accepted titles inside."""
        self._folder = folder
        self._bank_hotkey = bank_hotkey
        self._verify = verify
        self._timelock = timelock
        self._beacon = beacon
        self._is_partition_required = is_partition_required
        self._are_titles_required = are_titles_required
        self._index = FileIndex(folder, _describe)
        self._kept = KeptBatch()

    def seal_for(
        self, race_id: str, problems_min: int, undrawn: Collection[str] = (), *, round_number: int
    ) -> BatchNotice:
        """The notice of the batch that opens with that round. `undrawn` changes nothing: once its round is out, a batch
        can be read by whoever holds it.

        Raises ArenaError P4027 when there is no such file, or more than one; P4025 when the bank did not sign it; P4030
        when it was sealed without the partition it needs, P4031 without the titles; P4015 when it holds too few
        problems; P4029 when one of its ids stood in an earlier race's batch.
        """
        notice = self._file_for(round_number).notice
        if self._is_partition_required and not notice.partition_sha256:
            raise ArenaError("P4030", f"{notice.race_id} of {notice.signer} names no partition manifest")
        if self._are_titles_required and not notice.titles:
            raise ArenaError("P4031", f"{notice.race_id} of {notice.signer} holds no accepted titles")
        if len(notice.problems) < problems_min:
            raise ArenaError(
                "P4015", f"{notice.race_id} holds {len(notice.problems)} problems, a race draws {problems_min}"
            )
        for earlier in self._opened(besides=race_id):
            if shared := set(earlier.problem_ids) & set(notice.problem_ids):
                raise ArenaError("P4029", f"{min(shared)} of {notice.race_id} was raced in {earlier.race_id}")
        return notice

    def serves(self, batch_sha256: str, round_number: int) -> bool:
        """Whether the file of that round is this batch."""
        try:
            return self._file_for(round_number).notice.batch_sha256 == batch_sha256
        except ArenaError:
            return False

    def open(self, race_id: str, beacon_round: BeaconRound) -> None:
        """Open the race's file and keep what was in it.

        Raises ArenaError P4026, P4027, P4025 or P4010 when the file does not open to what its notice says; P4029 when
        one of its problems was raced before under another id; V2064 when the folder can't be written.
        """
        path = self._batch_path(race_id)
        if path.exists():
            return
        batch = open_batch(self._file_for(beacon_round.round), beacon_round, timelock=self._timelock)
        raced = {content: earlier.race_id for earlier in self._opened() for content in earlier.contents}
        for problem in batch.problems:
            if before := raced.get(_content(problem)):
                raise ArenaError("P4029", f"{problem.problem_id} of {batch.race_id} was raced in {before}")
        try:
            write_batch(path, batch)
        except OSError as error:
            raise ArenaError("V2064", f"{path}: {error.strerror or error}") from error

    def batch(self, race_id: str) -> SealedBatch:
        """The open batch of a race. Raises ArenaError P4001 before it was opened, P4010 when it was edited."""
        return self._kept.read(self._batch_path(race_id))

    def notices(self) -> tuple[BatchNotice, ...]:
        """The notices of every file here, soonest first. Raises ArenaError P4025 for one that the bank did not sign."""
        files = (read_sealed(path, self._bank_hotkey, self._verify) for path in self._paths())
        return tuple(sorted((file.notice for file in files), key=lambda notice: (notice.round, notice.race_id)))

    def level(self, closes_ms: Sequence[int], now_ms: int, undrawn: Collection[str] = ()) -> StockLevel:
        """How long the stock lasts, by what the files say of themselves."""
        waiting = [label for _, label in self._labels() if self._timelock.opens_ms(label.round) > now_ms]
        rounds = {label.round for label in waiting}
        served = [self._beacon.round_after(close_ms) in rounds for close_ms in closes_ms]
        return measure_level(served, closes_ms, now_ms, [label.made_ms for label in waiting])

    def _file_for(self, round_number: int) -> SealedFile:
        """The one file of that round that the bank signed."""
        paths = [path for path, label in self._labels() if label.round == round_number]
        signed, refusal = [], None
        for path in paths:
            try:
                signed.append(read_sealed(path, self._bank_hotkey, self._verify))
            except ArenaError as error:
                refusal = error
        if refusal is not None and not signed:
            raise refusal
        if len(signed) != 1:
            names = ", ".join(path.name for path in paths) or f"no file in {self._folder}"
            raise ArenaError("P4027", f"round {round_number} of {self._beacon.network}: {names}")
        return signed[0]

    def _labels(self) -> Iterator[tuple[Path, BatchNotice]]:
        """Each file of this beacon with what it says of itself, unchecked; what can't be read as a sealed file is none,
        and serves no race."""
        for path in self._paths():
            try:
                label = msgspec.json.decode(path.read_bytes(), type=SealedFile).notice
            except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
                continue
            if label.network == self._beacon.network:
                yield path, label

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{SUFFIX}"))

    def _batch_path(self, race_id: str) -> Path:
        return self._folder / f"{race_id}.batch.json"

    def _opened(self, besides: str = "") -> Iterator[Held]:
        own = self._batch_path(besides).name
        return (file.held for file in self._index.files("*.batch.json") if file.name != own)


def _describe(path: Path) -> Held:
    """What is in an opened batch."""
    batch = read_batch(path)
    return Held(
        race_id=batch.race_id,
        problem_ids=batch.problem_ids,
        product_ids=tuple(reward.product_id for problem in batch.problems for reward in problem.rewards),
        contents=tuple(_content(problem) for problem in batch.problems),
    )


def _content(problem: Problem) -> str:
    """What a problem asks and answers, whatever its id."""
    return hashlib.sha256(problem_bytes(replace(problem, problem_id="-"))).hexdigest()
