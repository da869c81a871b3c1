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
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import zstandard

from arena.exchange.operator_files import require_room
from arena.exchange.port import LogDigest
from arena.export.files import read_rows
from arena.export.model import LogRow
from arena.records.log import ORIGIN_PREFIX, Checkpoint, LogStart
from arena.records.log import note_sha256 as sha256_of
from foundation.canonical import UNREADABLE_JSON, file_sha256
from foundation.codes import LOG_UNFIT
from foundation.durable_files import SCRATCH, coded, move_into_place, write_whole
from foundation.errors import ArenaError

RACES_KEPT = 8
ROUND_ROWS_MAX = 500_000  # of one log from where a race's records begin; more of qualifying are not passed on
RACES_PASSED_ON = 2  # the newest ones: before the next race closes, a race is over for everybody
RACE_BYTES_MAX = 8 * (70 << 20)  # of one log's rows of a race, stubs too; 64 agents over 90 problems write 70 MB
AUTHOR_BYTES_MAX = 2 << 30  # of the files of one author
_ZSTD_LEVEL = 3


class RowsFile(msgspec.Struct, frozen=True, kw_only=True):
    """Whole rows, or stubs, among the records first_seq..last_seq of a log, one `LogRow` a line, zstd-compressed.
    `sha256` is of the file, `size` its bytes."""

    name: str
    sha256: str
    size: int
    first_seq: int
    last_seq: int


class HeldLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log of another validator that was read whole up to a note that the chain holds, and checked.

    `point` is the note's checkpoint, `due` its digest, `end` where the log stands there, `files` hold the whole rows
    from the digest's start on, in order, `stubs` the newest of the others, without a gap. `serial` grows with each log
    of a folder. Qualifying logs of one validator share files: each adds one of a kind.
    """

    serial: int
    note: str
    point: Checkpoint
    due: LogDigest
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
        self._rows, self._entries, self._notes = folder / "rows", folder / "entries", folder / "notes"
        self._stubs, self._ignored = folder / "stubs", folder / "ignored.txt"
        self._races_kept = races_kept
        self._changing = threading.RLock()  # pulls end in threads of their own; `_known` is replaced, never changed
        with coded(folder):
            for part in () if is_reader else (self._rows, self._stubs, self._entries, self._notes):
                part.mkdir(parents=True, exist_ok=True)
            self._known = {log.name: log for log in self._read_entries()}
            if is_reader:
                return
            left = {path for part in (self._rows, self._stubs, self._entries) for path in part.iterdir()}
            for path in (*left - self._named(), *self._notes.glob(f"*{SCRATCH}")):  # no pull is under way yet
                path.unlink()

    def ignored(self) -> frozenset[str]:
        """The hotkeys that this node's operator wants to hear nothing of: `ignored.txt` in the folder, one a line."""
        try:
            return frozenset(self._ignored.read_text("utf-8", "replace").split())
        except OSError:
            return frozenset()

    def held(self, race_id: str | None = None, validator: str | None = None) -> list[HeldLog]:
        """The logs held for a race ("": qualifying) and a validator (None: of all), oldest first.

        For qualifying a validator may stand there several times, once for each note: take the one whose hash the chain
        held at the anchor block."""
        found = [
            log for log in self._known.values() if race_id in (None, log.race_id) and validator in (None, log.validator)
        ]
        return sorted(found, key=lambda log: log.serial)

    def find(self, validator: str, race_id: str, note_sha256: str) -> HeldLog | None:
        """The log of exactly that note, or None."""
        return next((log for log in self.held(race_id, validator) if log.note_sha256 == note_sha256), None)

    def rows(self, race_id: str, validator: str, *, note_sha256: str = "") -> list[LogRow]:
        """The whole rows of a held log (of the newest, or of the one of that note), in order. [] for one that is not
        held; raises ArenaError V2064 for files that were damaged: such a log is no longer held."""
        found = [log for log in self.held(race_id, validator) if note_sha256 in ("", log.note_sha256)]
        return list(self._read(self._rows, found[-1].files, 0)) if found else []

    def all_rows(self, log: HeldLog, after_seq: int) -> Iterator[LogRow]:
        """The rows of a log behind a record (`log.shown_after` or later), stubs too. Raises V2064 as `rows`."""
        whole, stubs = (
            self._read(folder, files, after_seq)
            for folder, files in ((self._rows, log.files), (self._stubs, log.stubs))
        )
        return heapq.merge(whole, stubs, key=lambda row: row.seq)

    def _read(self, folder: Path, files: Iterable[RowsFile], after_seq: int) -> Iterator[LogRow]:
        """Rows behind a record. Files are compared with their hash first."""
        for file in files:
            if file.last_seq <= after_seq:
                continue
            path = folder / file.name
            try:
                found = file_sha256(path)
            except OSError as error:
                found = str(error.strerror)
            if found != file.sha256:
                for other in list(self._known.values()):
                    if file in other.kept:
                        self.forget(other)
                raise ArenaError("V2064", f"{path} was changed; its log is asked for again")
            yield from (row for row in read_rows(path) if row.seq > after_seq)

    def writer(self, race_id: str) -> RowsWriter:
        """Where the rows of one pull for a race ("": qualifying) go. Raises ArenaError V2064; V2115 when the disk is
        nearly full."""
        return RowsWriter(self._rows, self._stubs, race_id)

    def put(
        self,
        writer: RowsWriter,
        *,
        note: str,
        point: Checkpoint,
        due: LogDigest,
        end: LogStart,
        before: HeldLog | None = None,
    ) -> HeldLog:
        """Hold a log that was checked up to `point`; `before` is the one whose rows it continues.

        The log is held when this returns, and what its author has over its budget is not, oldest first. Raises
        ArenaError V2064, and U3043 for a log that is over the budget by itself; then it is not.
        """
        with coded(self._rows), self._changing:
            files, stubs = writer.complete()
            if before:
                files, stubs = (*before.files, *files), (*before.stubs, *stubs) if stubs else ()
            serial = 1 + max((known.serial for known in self._known.values()), default=0)
            log = HeldLog(serial=serial, note=note, point=point, due=due, end=end, files=files, stubs=stubs)
            self._keep([log])
            self._drop_old(log.validator)
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
        """A note of a held log, or one of our own that was kept; None where there is none of that hash. "": the newest
        of a validator's held logs."""
        if not note_sha256:
            mine = [log for log in self._known.values() if log.validator == validator]
            return max(mine, key=lambda log: log.point.size).note if mine else None
        for log in self._known.values():
            if log.note_sha256 == note_sha256 and log.validator == validator:
                return log.note
        path = self._notes / note_sha256
        note = path.read_text("utf-8") if len(note_sha256) == 64 and note_sha256.isalnum() and path.is_file() else ""
        is_sound = note.startswith(f"{ORIGIN_PREFIX}{validator}\n") and sha256_of(note) == note_sha256
        return note if is_sound else None

    def forget(self, log: HeldLog) -> None:
        """Hold a log no longer."""
        with self._changing:
            self._remove([log])

    def _read_entries(self) -> Iterator[HeldLog]:
        for path in sorted(self._entries.glob("*.json")):
            with contextlib.suppress(*UNREADABLE_JSON):
                log = msgspec.json.decode(path.read_bytes(), type=HeldLog)
                if log.name == path.name:
                    yield log

    def _drop_old(self, author: str) -> None:
        """Keep the newest races, of each validator the newest qualifying notes, and of the author that a log was just
        added of no more than its budget; stubs as long as they are passed on."""
        logs = self.held()
        races = list(dict.fromkeys(log.race_id for log in reversed(logs) if log.race_id))  # newest first
        old = [log for log in logs if log.race_id in races[self._races_kept :]]
        for validator in {log.validator for log in logs}:
            old += self.held("", validator)[: -self._races_kept]
        self._remove(old)
        lighter = []
        for log in self._known.values():
            newest = self.held(log.race_id, log.validator)[-1].stubs[-self._races_kept :]
            is_over = log.race_id in races[RACES_PASSED_ON:]
            stubs = () if is_over else tuple(file for file in log.stubs if file in newest)
            lighter += [msgspec.structs.replace(log, stubs=stubs)] if stubs != log.stubs else []
        self._keep(lighter)
        own = self.held(validator=author)
        while sum({file.name: file.size for log in own for file in log.kept}.values()) > AUTHOR_BYTES_MAX:
            self._remove([own.pop(0)])

    def _keep(self, logs: list[HeldLog]) -> None:
        """Hold logs, or those of their names otherwise."""
        for log in logs:
            write_whole(self._entries / log.name, msgspec.json.encode(log))
        self._change({**self._known, **{log.name: log for log in logs}})

    def _remove(self, logs: list[HeldLog]) -> None:
        gone = {log.name for log in logs}
        self._change({name: log for name, log in self._known.items() if name not in gone})

    def _change(self, known: dict[str, HeldLog]) -> None:
        """Know these logs, and take away the files that none of them names any more."""
        before, self._known = self._named(), known
        for path in () if self._is_reader else before - self._named():
            path.unlink(missing_ok=True)

    def _named(self) -> set[Path]:
        named = {self._entries / name for name in self._known}
        for log in self._known.values():
            named |= {self._rows / file.name for file in log.files} | {self._stubs / file.name for file in log.stubs}
        return named


class RowsWriter:
    """Rows of one pull on their way to disk. Nothing reads them before `PeerLogStore.put`."""

    def __init__(self, rows: Path, stubs: Path, race_id: str) -> None:
        """Whole rows go to a file in `rows`, the others to one in `stubs`."""
        self._first = self._last = self._bytes = 0
        self._race_id, self._folder = race_id, rows
        require_room(rows)
        self._streams = {False: _Stream(rows), True: _Stream(stubs)}  # by whether a row is a stub

    def write(self, rows: list[LogRow]) -> None:
        """Add rows that were checked, in order. Raises ArenaError U3043 for more of a log than any writes, V2064, and
        V2115 when the disk is nearly full."""
        if not rows:
            return
        require_room(self._folder)
        self._first, self._last = self._first or rows[0].seq, rows[-1].seq
        if self._last - self._first >= ROUND_ROWS_MAX and True in self._streams:
            self._streams.pop(True).abandon()
        for is_stub, stream in self._streams.items():
            lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows if (row.content is None) == is_stub)
            stream.write(lines)
            self._bytes += len(lines)
        # Qualifying is read from a log's beginning, which grows for as long as its validator runs.
        size, most = (self._bytes, RACE_BYTES_MAX) if self._race_id else (self._streams[False].size, AUTHOR_BYTES_MAX)
        if size > most:
            about = f"the rows of {rows[0].validator} for {self._race_id or 'qualifying'}"
            raise ArenaError(LOG_UNFIT, f"{about}, stubs too, are over {most} bytes")

    def complete(self) -> tuple[tuple[RowsFile, ...], tuple[RowsFile, ...]]:
        """Make the files of the whole rows and of the stubs durable under their own names; none where nothing was
        written. Raises OSError."""
        streams = self._streams if self._last else {}
        made = {is_stub: (stream.complete(self._first, self._last),) for is_stub, stream in streams.items()}
        self.abandon()
        return made.get(False, ()), made.get(True, ())

    def abandon(self) -> None:
        """Forget what was written. After `complete` it does nothing."""
        for stream in self._streams.values():
            stream.abandon()


class _Stream:
    """A compressed file on its way."""

    def __init__(self, folder: Path) -> None:
        with coded(folder):
            handle, name = tempfile.mkstemp(suffix=SCRATCH, prefix="", dir=folder)
            self._scratch, self._file = Path(name), os.fdopen(handle, "wb")
        self._stream = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).stream_writer(
            self._file, closefd=False
        )

    @property
    def size(self) -> int:
        return self._file.tell()

    def write(self, lines: bytes) -> None:
        with coded(self._scratch):
            self._stream.write(lines)

    def complete(self, first_seq: int, last_seq: int) -> RowsFile:
        self._stream.flush(zstandard.FLUSH_FRAME)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        path = self._scratch.with_suffix(".jsonl.zst")
        move_into_place(self._scratch, path)
        return RowsFile(
            name=path.name,
            sha256=file_sha256(path),
            size=path.stat().st_size,
            first_seq=first_seq,
            last_seq=last_seq,
        )

    def abandon(self) -> None:
        self._file.close()
        self._scratch.unlink(missing_ok=True)
