"""The completions of one (agent, problem) over the restarts of its episode: in memory, and in a file.

An answer is stored before the agent sees it, so that a worker which is killed at any instant has shown nothing
that a restart would draw anew. A line is whole by its end: the tail of a write that was cut off is dropped.
Journals survive the death of processes, not of the machine's memory (nothing is synced). They hold what the body holds,
no key, and are removed with their work item.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from foundation.codes import NOT_RECORDED
from foundation.durable_files import coded
from foundation.errors import ArenaError, Failure
from harness.inference.port import ModelReply, RecordedAnswer

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step: an answer that was added, or the place of one that a restart asked for again; neither: nothing recorded
    so far is owed."""

    answer: RecordedAnswer | None = None
    taken: int | None = None


_LINES = msgspec.json.Decoder(Line)


class MemoryJournal:
    """What one (agent, problem) was answered, kept over the restarts of its episode; lasts as long as its process.

    A recorded reply is *owed* until this attempt has asked for it again: an agent that leaves one out has put a reply
    away that it did not like. The order among different requests is free, so agents with threads repeat themselves too.
    `next_attempt` opens it for a restart.
    """

    def __init__(self) -> None:
        self._answers: list[RecordedAnswer] = []
        self._places: dict[str, list[int]] = {}
        self._owed: set[int] = set()  # by this attempt
        self._kept: set[int] = set()  # what the next attempt will owe
        self._taken: set[int] = set()  # in this attempt

    def take(self, request_sha256: str) -> RecordedAnswer | None:
        """The first answer to this request that was not taken in this attempt, or None. From then on it counts among
        what later attempts owe."""
        for place in self._places.get(request_sha256, ()):
            if place not in self._taken:
                if place not in self._kept and self._answers[place].reply is not None:
                    self._write(Line(taken=place))
                    self._kept.add(place)
                self._taken.add(place)
                self._owed.discard(place)
                return self._answers[place]
        return None

    def add(self, answer: RecordedAnswer) -> None:
        """Keep an answer before the agent sees it. Raises ArenaError V2004, V2115 when it cannot be kept."""
        self._write(Line(answer=answer))
        self._taken.add(len(self._answers))
        self._keep(answer)

    def owed(self) -> int:
        """Replies of earlier attempts that this one has to ask for and has not yet."""
        return len(self._owed)

    def models(self) -> tuple[str, ...]:
        """The models of the replies that this attempt owes or the next one will."""
        return tuple(dict.fromkeys(self._answers[place].model for place in sorted(self._kept)))

    def forgive(self) -> None:
        """Owe nothing of what is recorded: what ended the attempt lay in no miner's hands. Raises as `add`."""
        self._write(Line())
        self._kept.clear()
        self._owed.clear()

    def next_attempt(self) -> None:
        """Begin a restart: nothing is taken yet, and what was kept is owed."""
        self._taken.clear()
        self._owed = set(self._kept)

    def close(self) -> None:
        """Give back what it holds open."""

    def _keep(self, answer: RecordedAnswer) -> None:
        place = len(self._answers)
        self._answers.append(answer)
        self._places.setdefault(answer.request_sha256, []).append(place)
        if answer.reply is not None:
            self._kept.add(place)

    def _write(self, line: Line) -> None:
        """Make `line` last as long as this journal does."""


class FileJournal(MemoryJournal):
    """A `MemoryJournal` in the file `path`. Opening it begins an attempt. One process writes at a time."""

    def __init__(self, path: Path) -> None:
        """Raises ArenaError V2004, V2115 for a file that cannot be read or made."""
        super().__init__()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(path, _FLAGS | os.O_CREAT, 0o600)
            with open(self._file, "rb", closefd=False) as old:
                whole = self._read(old.read())
            os.ftruncate(self._file, whole)
        except OSError as error:
            raise _unkept(error) from error
        self.next_attempt()

    def close(self) -> None:
        """Close the file; the journal stays."""
        os.close(self._file)

    def _read(self, rows: bytes) -> int:
        """Fold every whole line; the length of what is whole."""
        whole = 0
        for row in rows.splitlines(keepends=True):
            try:
                line = _LINES.decode(row)
            except (UnicodeDecodeError, msgspec.DecodeError):
                break
            is_placed = line.taken is None or 0 <= line.taken < len(self._answers)
            if not row.endswith(b"\n") or not is_placed:
                break
            whole += len(row)
            if line.answer is not None:
                self._keep(line.answer)
            elif line.taken is not None:
                self._kept.add(line.taken)
            else:
                self._kept.clear()
        return whole

    def _write(self, line: Line) -> None:
        row = memoryview(msgspec.json.encode(line) + b"\n")  # one row: JSON escapes line breaks
        start = os.fstat(self._file).st_size
        try:
            while row:
                row = row[os.write(self._file, row) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # what stays of the row is dropped when the file is read
                os.ftruncate(self._file, start)
            raise _unkept(error) from error


def _unkept(error: OSError) -> ArenaError:
    code = "V2115" if error.errno in _DISK_FULL else "V2004"
    return ArenaError(code, f"completions of an episode cannot be kept: {error.strerror}")


class RecordingHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """First line of a recording: the models that an agent is offered when it is replayed."""

    models: tuple[str, ...]


class Recording(MemoryJournal):
    """The completions of a run over all its problems in a file: `RecordedAnswer` lines after their head, read whole and
    appended to. Thread-safe. Nothing is owed: an agent that was changed asks for something else."""

    def __init__(self, path: Path, models: Sequence[str], *, is_new: bool, is_replayed: bool) -> None:
        """Open `path`; with `is_new` it may be missing and is begun with `models`. With `is_replayed` what is recorded
        is answered from it. Raises ArenaError V2027."""
        super().__init__()
        self._path, self._lock = path, threading.Lock()
        self._waiting: dict[str, list[RecordedAnswer]] = {}  # by request, in their order
        with coded(path, "V2027"):
            if is_new and not (path.exists() and path.stat().st_size):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(msgspec.json.encode(RecordingHead(models=tuple(models))) + b"\n")
            content = path.read_bytes()
            head, *lines, cut_short = content.split(b"\n") if b"\n" in content else (content, b"")
            self.offered = msgspec.json.decode(head, type=RecordingHead).models
            for one in (msgspec.json.decode(line, type=RecordedAnswer) for line in lines):
                self._waiting.setdefault(one.request_sha256, []).extend([one] if is_replayed else [])
            os.truncate(path, len(content) - len(cut_short))

    def take(self, request_sha256: str) -> RecordedAnswer | None:
        """The next answer to this request in this run, or None."""
        with self._lock:
            waiting = self._waiting.get(request_sha256)
            return waiting.pop(0) if waiting else None

    def add(self, answer: RecordedAnswer) -> None:
        """Keep an answer that was just given. Raises OSError."""
        with self._lock, self._path.open("ab") as stream:
            stream.write(msgspec.json.encode(answer) + b"\n")


class NoUpstream:
    """An `Upstream` where a recording answers alone."""

    name = "recording"

    def complete(self, request: str) -> ModelReply:
        """Raises ArenaError V2180: the recording holds no reply to this request."""
        asked = msgspec.json.decode(request)
        raise ArenaError(NOT_RECORDED, f"a request of {len(asked['messages'])} messages to {asked['model']}")

    def probe(self, request: str) -> Failure | None:
        """There is nothing to ask."""
        return None
