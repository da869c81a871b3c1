"""Held logs on disk: what was pulled and checked, so that a restart asks for nothing twice. One process per folder.

A log counts as held once its entry is complete on disk (written beside, synced, renamed), not before. What a
killed process left is removed when the folder is opened, and never read. A file whose bytes changed is V2064 and its
entries are forgotten, so that they are asked for again. Of races the newest few are kept, of qualifying the newest few
notes of each validator; marks to read on from come from what is kept. Stubs lie in files of their own: they count in
nothing, and are kept only as long as others may ask for them. A log has a budget in bytes, and so has its author.
"""

from __future__ import annotations

import contextlib
import heapq
import secrets
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from arena.exchange.operator_files import require_room
from arena.exchange.port import Claim
from arena.export.files import LinesFile, describe, read_rows
from arena.export.model import LogRow, ShardFile
from arena.records.log import ORIGIN_PREFIX, LogStart
from arena.records.log import note_sha256 as sha256_of
from foundation.canonical import UNREADABLE_JSON, file_sha256
from foundation.codes import LOG_UNFIT
from foundation.durable_files import SCRATCH, coded, sync_path, write_whole
from foundation.errors import ArenaError

RACES_KEPT = 8
ROUND_ROWS_MAX = 500_000  # of one log from where a race's records begin; more of qualifying are not passed on
RACES_PASSED_ON = 2  # the newest ones: before the next race closes, a race is over for everybody
RACE_BYTES_MAX = 8 * (70 << 20)  # of one log's rows of a race, stubs too; 64 agents over 90 problems write 70 MB
AUTHOR_BYTES_MAX = 2 << 30  # of the files of one author
WHOLE, STUBS = "rows", "stubs"


class RowsFile(ShardFile, frozen=True, kw_only=True):
    """Whole rows, or stubs, among the records first_seq..last_seq of a log, one `LogRow` a line, zstd-compressed."""

    first_seq: int
    last_seq: int


class HeldLog(Claim, frozen=True, kw_only=True):
    """A log of another validator that was read whole up to a note that the chain holds, and checked.

    `end` is where the log stands there, `files` hold the whole rows from the digest's start on, in order, `stubs` the
    newest of the others, without a gap. `serial` grows with each log of a folder. Qualifying logs of one validator
    share files: each adds one of a kind.
    """

    serial: int
    end: LogStart
    files: tuple[RowsFile, ...]
    stubs: tuple[RowsFile, ...] = ()

    @property
    def kept(self) -> tuple[RowsFile, ...]:
        """All of its files."""
        return (*self.files, *self.stubs)

    @property
    def shown_after(self) -> int:
        """The record behind which every row is here, to be passed on."""
        return self.stubs[0].first_seq - 1 if self.stubs else self.point.size

    @property
    def validator(self) -> str:
        """Whose log it is."""
        return self.point.validator

    @property
    def race_id(self) -> str:
        """The race whose records are held whole; "": qualifying."""
        return self.due.race_id

    @property
    def note_sha256(self) -> str:
        """What the chain holds of its note."""
        return sha256_of(self.note)

    @property
    def name(self) -> str:
        """Its file name: no name that came from elsewhere is in it."""
        return f"{self.serial}.json"


class PeerLogStore:
    """The held logs of one state folder."""

    def __init__(self, folder: Path, *, races_kept: int = RACES_KEPT, is_reader: bool = False) -> None:
        """Opens or makes the folder and clears what a kill left. Raises ArenaError V2064 when it can't.

        `is_reader`: beside the process that owns the folder; nothing is made, swept or taken away.
        """
        self._is_reader = is_reader
        self._folder, self._entries, self._notes = folder, folder / "entries", folder / "notes"
        self._races_kept = races_kept
        self._changing = threading.RLock()  # pulls end in threads of their own; `_known` is replaced, never changed
        self._known: dict[str, HeldLog] = {}
        parts = [folder / WHOLE, folder / STUBS, self._entries]
        with coded(folder):
            for part in () if is_reader else (*parts, self._notes):
                part.mkdir(parents=True, exist_ok=True)
            for path in self._entries.glob("*.json"):
                with contextlib.suppress(*UNREADABLE_JSON):
                    log = msgspec.json.decode(path.read_bytes(), type=HeldLog)
                    self._known |= {log.name: log} if log.name == path.name else {}
            if is_reader:
                return
            left = {path for part in parts for path in part.iterdir()}
            for path in (*left - self._named(), *self._notes.glob(f"*{SCRATCH}")):  # no pull is under way yet
                path.unlink()

    def ignored(self) -> frozenset[str]:
        """The hotkeys that this node's operator wants to hear nothing of: `ignored.txt` in the folder, one a line."""
        try:
            return frozenset((self._folder / "ignored.txt").read_text("utf-8", "replace").split())
        except OSError:
            return frozenset()

    def held(self, race_id: str | None = None, validator: str | None = None) -> list[HeldLog]:
        """The logs held for a race ("": qualifying) and a validator (None: of all), oldest first.

        For qualifying a validator may stand there several times, once for each note: take the one whose hash the chain
        held at the anchor block."""
        known = sorted(self._known.values(), key=lambda log: log.serial)
        return [log for log in known if race_id in (None, log.race_id) and validator in (None, log.validator)]

    def find(self, validator: str, race_id: str, note_sha256: str) -> HeldLog | None:
        """The log of exactly that note, or None."""
        return next((log for log in self.held(race_id, validator) if log.note_sha256 == note_sha256), None)

    def rows(self, log: HeldLog) -> Iterator[LogRow]:
        """The whole rows of a log, in order. Raises ArenaError V2064 for a file that was damaged: such a log is no
        longer held."""
        return self._read(log.files)

    def all_rows(self, log: HeldLog, after_seq: int) -> Iterator[LogRow]:
        """The rows of a log behind a record (`log.shown_after` or later), stubs too. Raises V2064 as `rows`."""
        return heapq.merge(self._read(log.files, after_seq), self._read(log.stubs, after_seq), key=lambda row: row.seq)

    def _read(self, files: Iterable[RowsFile], after_seq: int = 0) -> Iterator[LogRow]:
        """Rows behind a record. Files are compared with their hash first."""
        for file in files:
            if file.last_seq <= after_seq:
                continue
            path = self._folder / file.path
            try:
                found = file_sha256(path)
            except OSError as error:
                found = str(error.strerror)
            if found != file.sha256:
                with self._changing:
                    self._hold([log for log in self.held() if file not in log.kept])
                raise ArenaError("V2064", f"{path} was changed; its log is asked for again")
            yield from (row for row in read_rows(path) if row.seq > after_seq)

    def writer(self, race_id: str) -> RowsWriter:
        """Where the rows of one pull for a race ("": qualifying) go. Raises ArenaError V2064; V2115 when the disk is
        nearly full."""
        return RowsWriter(self._folder, race_id)

    def put(self, writer: RowsWriter, claim: Claim, *, end: LogStart, before: HeldLog | None = None) -> HeldLog:
        """Hold a log that was checked against its claim; `before` is the one whose rows it continues.

        The log is held when this returns, and what its author has over its budget is not, oldest first. Raises
        ArenaError V2064, and U3043 for a log that is over the budget by itself; then it is not.
        """
        with coded(self._folder), self._changing:
            files, stubs = writer.complete()
            if before:
                files, stubs = (*before.files, *files), (*before.stubs, *stubs) if stubs else ()
            serial = 1 + max((known.serial for known in self._known.values()), default=0)
            stated = {name: getattr(claim, name) for name in Claim.__struct_fields__}
            log = HeldLog(**stated, serial=serial, end=end, files=files, stubs=stubs)
            self._hold([*self.held(), log])
            self._hold(self._worth_keeping(log.validator))
        if log.name not in self._known:
            raise ArenaError(LOG_UNFIT, f"the rows of {log.validator} are over {AUTHOR_BYTES_MAX} bytes")
        return log

    def keep_note(self, note: str) -> None:
        """Keep a note of our own that is to be anchored, so that it can be served. Raises ArenaError V2064."""
        with coded(self._notes):
            write_whole(self._notes / sha256_of(note), note.encode())
            newest = sorted(self._notes.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for path in newest[: -4 * self._races_kept]:
                path.unlink()

    def note(self, validator: str, note_sha256: str) -> str | None:
        """A note of a held log, or one of our own that was kept; None where there is none of that hash (hex). "": the
        newest of a validator's held logs."""
        held = self.held(validator=validator)
        if not note_sha256:
            return max(held, key=lambda log: log.point.size).note if held else None
        for log in held:
            if log.note_sha256 == note_sha256:
                return log.note
        path = self._notes / note_sha256
        note = path.read_text("utf-8") if path.is_file() else ""
        is_sound = note.startswith(f"{ORIGIN_PREFIX}{validator}\n") and sha256_of(note) == note_sha256
        return note if is_sound else None

    def _worth_keeping(self, author: str) -> list[HeldLog]:
        """Of what is held the newest races, of each validator the newest qualifying notes, and of the author that a log
        was just added of no more than its budget; stubs as long as they are passed on."""
        races = list(dict.fromkeys(log.race_id for log in reversed(self.held()) if log.race_id))  # newest first
        alike = defaultdict[tuple[str, str], list[HeldLog]](list)
        for log in self.held():
            alike[log.race_id, log.validator].append(log)
        found = []
        for (race_id, _), logs in alike.items():
            stubs = () if race_id in races[RACES_PASSED_ON:] else logs[-1].stubs[-self._races_kept :]
            for log in () if race_id in races[self._races_kept :] else logs if race_id else logs[-self._races_kept :]:
                left = tuple(file for file in log.stubs if file in stubs)
                found.append(msgspec.structs.replace(log, stubs=left))
        own = sorted((log for log in found if log.validator == author), key=lambda log: log.serial)
        while sum({file.path: file.size_bytes for log in own for file in log.kept}.values()) > AUTHOR_BYTES_MAX:
            found.remove(own.pop(0))
        return found

    def _hold(self, logs: list[HeldLog]) -> None:
        """Hold these logs and no others, and take away files that none of them names: entries first, then rows."""
        for log in logs:
            if self._known.get(log.name) != log:
                write_whole(self._entries / log.name, msgspec.json.encode(log))
        before, self._known = self._named(), {log.name: log for log in logs}
        gone = () if self._is_reader else sorted(before - self._named(), key=lambda path: path.parent != self._entries)
        for path in gone:  # a kill in between leaves no entry whose rows are gone
            path.unlink(missing_ok=True)

    def _named(self) -> set[Path]:
        files = {self._folder / file.path for log in self._known.values() for file in log.kept}
        return files | {self._entries / name for name in self._known}


class RowsWriter:
    """Rows of one pull on their way to disk. Nothing reads them before `PeerLogStore.put`."""

    def __init__(self, folder: Path, race_id: str) -> None:
        """Whole rows and stubs go to a file each."""
        self._first = self._last = self._bytes = 0
        self._race_id, self._folder = race_id, folder
        require_room(folder)
        name = f"{secrets.token_hex(8)}.jsonl.zst"
        with coded(folder):
            self._files = {part == STUBS: LinesFile(folder / part / name) for part in (WHOLE, STUBS)}

    def write(self, rows: list[LogRow]) -> None:
        """Add rows that were checked, in order. Raises ArenaError U3043 for more of a log than any writes, V2064, and
        V2115 when the disk is nearly full."""
        if not rows:
            return
        require_room(self._folder)
        self._first, self._last = self._first or rows[0].seq, rows[-1].seq
        with coded(self._folder):
            if self._last - self._first >= ROUND_ROWS_MAX and True in self._files:
                _abandon(self._files.pop(True))
            for is_stub, file in self._files.items():
                lines = [msgspec.json.encode(row) for row in rows if (row.content is None) == is_stub]
                file.write(lines)
                self._bytes += sum(map(len, lines)) + len(lines)
            # Qualifying is read from a log's beginning, which grows for as long as its validator runs.
            size = self._bytes if self._race_id else self._files[False].path.stat().st_size
        most = RACE_BYTES_MAX if self._race_id else AUTHOR_BYTES_MAX
        if size > most:
            about = f"the rows of {rows[0].validator} for {self._race_id or 'qualifying'}"
            raise ArenaError(LOG_UNFIT, f"{about}, stubs too, are over {most} bytes")

    def complete(self) -> tuple[tuple[RowsFile, ...], tuple[RowsFile, ...]]:
        """Make the files of the whole rows and of the stubs durable; none where nothing was written. Raises OSError."""
        made = {}
        for is_stub, file in self._files.items() if self._last else ():
            file.close()
            shard = describe(self._folder, file.path, file.rows)
            sync_path(file.path.parent)
            kept = RowsFile(**msgspec.structs.asdict(shard), first_seq=self._first, last_seq=self._last)
            made[is_stub] = (kept,)
        if made:
            self._files = {}
        return made.get(False, ()), made.get(True, ())

    def abandon(self) -> None:
        """Forget what was written. After `complete` it does nothing."""
        for file in self._files.values():
            _abandon(file)


def _abandon(file: LinesFile) -> None:
    with contextlib.suppress(OSError, ValueError):  # the disk may be full, or it was closed
        file.close()
    file.path.unlink(missing_ok=True)
