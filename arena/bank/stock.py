"""An operator's stock of problems: indexed files, the validator's own, the sealed one, and what is left of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from arena.bank.batch import SALT_BYTES, KeptBatch, SealedBatch, read_batch, seal, write_batch
from arena.bank.partition_file import PoolAssignment, unpartitioned
from arena.bank.sealing import BatchNotice, SealedFile, open_batch, read_sealed
from arena.chain.port import Beacon, BeaconRound, Timelock, Verifier
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from problems.formats import problem_bytes, read_problems, write_problems
from problems.model import Problem
from problems.titles import AcceptedTitles

DAY_MS = 86_400_000
HORIZON_RACES = 400  # how far ahead a stock is measured


class StockLevel(msgspec.Struct, frozen=True, kw_only=True):
    """What is in stock at one moment.

    `races` counts coming races that have a batch, `lasts_ms` is the time until the close of the first that has none.
    """

    races: int
    lasts_ms: int
    oldest_made_ms: int | None = None  # unix milliseconds; None: nothing waits
    newest_made_ms: int | None = None
    is_made_here: bool = False  # the bank makes problems when it is empty, and cannot run low

    def is_low(self, days_min: int) -> bool:
        """Whether the stock lasts for fewer days than an operator has to keep."""
        return not self.is_made_here and self.lasts_ms < days_min * DAY_MS


def measure_level(
    served: Sequence[bool], closes_ms: Sequence[int], now_ms: int, made_ms: Sequence[int], *, is_made_here: bool = False
) -> StockLevel:
    """The level, where `served[n]` says whether the race that closes at `closes_ms[n]` has a batch.

    `made_ms` are the unix milliseconds at which the waiting batches were made. When every race has a batch, the stock
    lasts until the last close. Raises ValueError when the two sequences differ in length.
    """
    races, until_ms = 0, now_ms
    for has_batch, close_ms in zip(served, closes_ms, strict=True):
        until_ms = close_ms
        if not has_batch:
            break
        races += 1
    return StockLevel(
        races=races,
        lasts_ms=max(0, until_ms - now_ms) if races else 0,
        oldest_made_ms=min(made_ms, default=None),
        newest_made_ms=max(made_ms, default=None),
        is_made_here=is_made_here,
    )


INDEX_FILE = "index.jsonl"


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What one file holds, as far as later races must know it."""

    race_id: str = ""  # of a batch
    problem_ids: tuple[str, ...]
    product_ids: tuple[str, ...]  # that answer
    contents: tuple[str, ...] = ()  # per problem, a hash (hex) of what it asks and answers, whatever its id


class IndexedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the index: a file as it stood when it was read."""

    name: str
    size: int
    changed_ns: int
    held: Held


class FileIndex:
    """The index of one folder. `describe` reads a file; what it raises is raised, and nothing is entered."""

    def __init__(self, folder: Path, describe: Callable[[Path], Held]) -> None:
        self._folder = folder
        self._describe = describe
        self._known: dict[str, IndexedFile] | None = None

    def files(self, pattern: str) -> list[IndexedFile]:
        """Every file that matches, in order of its name. Raises what `describe` does, P4001 for one that is gone."""
        if self._known is None:
            self._known = {}
            with contextlib.suppress(OSError):
                for line in (self._folder / INDEX_FILE).read_bytes().splitlines():
                    with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
                        entry = msgspec.json.decode(line, type=IndexedFile)
                        self._known[entry.name] = entry  # the latest line of a file counts
        found, fresh = [], []
        for path in sorted(self._folder.glob(pattern)):
            try:
                now = path.stat()
            except OSError as error:
                raise ArenaError("P4001", f"{path}: {error.strerror or error}") from error
            known = self._known.get(path.name)
            if known is None or (known.size, known.changed_ns) != (now.st_size, now.st_mtime_ns):
                known = IndexedFile(
                    name=path.name, size=now.st_size, changed_ns=now.st_mtime_ns, held=self._describe(path)
                )
                self._known[path.name] = known
                fresh.append(known)
            found.append(known)
        if fresh:
            # one write, after a line break: a line that a kill cut short spoils no other
            text = b"".join(b"\n" + msgspec.json.encode(entry) for entry in fresh)
            with contextlib.suppress(OSError):
                descriptor = os.open(self._folder / INDEX_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(text)
        return found


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
        when it was sealed without the partition it needs, P4030 without the titles; P4015 when it holds too few
        problems; P4029 when one of its ids stood in an earlier race's batch.
        """
        notice = self._file_for(round_number).notice
        if self._is_partition_required and not notice.partition_sha256:
            raise ArenaError("P4030", f"{notice.race_id} of {notice.signer} names no partition manifest")
        if self._are_titles_required and not notice.titles:
            raise ArenaError("P4030", f"{notice.race_id} of {notice.signer} holds no accepted titles")
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


class Bank(Protocol):
    """One batch per race. Raises ArenaError V2064 where its folder can't be written."""

    def seal_for(
        self, race_id: str, problems_min: int, undrawn: Collection[str] = (), *, round_number: int
    ) -> SealedBatch | BatchNotice:
        """What the race's batch commits to: of at least `problems_min` problems, for a race whose close is followed by
        that round. Asking again gives the same batch. `undrawn` names earlier races that ended before their draw.

        Raises ArenaError P4014, P4015 or P4027 when there is none, P4010, P4025 or P4029 to P4030 for one that may not
        be used.
        """
        ...

    def serves(self, batch_sha256: str, round_number: int) -> bool:
        """Whether this batch may serve a race whose close is followed by that round."""
        ...

    def open(self, race_id: str, beacon_round: BeaconRound) -> None:
        """Make the race's batch readable with the round that its draw follows from. Opening twice is opening once.

        Raises ArenaError P4026, P4010, P4027 or P4029 when that batch can't be raced.
        """
        ...

    def batch(self, race_id: str) -> SealedBatch:
        """The open batch of a race. Raises ArenaError P4001 when there is none (yet), P4010 when it was edited."""
        ...

    def level(self, closes_ms: Sequence[int], now_ms: int, undrawn: Collection[str] = ()) -> StockLevel:
        """How long the stock lasts, given the closes of the races to come, soonest first."""
        ...
