"""The local inbox: a folder of files that the node's door and relay write and the node polls, with a receipt for each.

A file appears whole or not at all, killing either side at any instant loses nothing, and an entry stays until
its receipt is written. Nothing in the folder is trusted: every entry is decoded and checked again by the reader.
Whoever looks through it holds one entry at a time, however many wait.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from arena.chain.keys import canonical_hotkey
from arena.gate.report import GateReport
from arena.submissions.model import SignedSubmission
from foundation.canonical import UNREADABLE_JSON
from foundation.durable_files import move_into_place
from foundation.errors import ArenaError, Failure

ENTRY_BYTES_MAX = 8 << 20  # a 1 MB source, escaped in JSON, with room
NAMES_PER_LOOK = 1_024  # of entries that are remembered at once: the folder is looked through again for the next ones
_TIME_MS_MAX = 1 << 42  # of a file: beyond the year 2100

NAME_CHARS_MAX = 1_000
_NO_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR, errno.ENODEV})

Place = tuple[int, str]  # in the queue: the file's time (unix ns), which is that of the submission, and its name

ReceiptState = Literal["refused", "rejected", "review", "accepted", "qualified", "unqualified"]


class InboxEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the inbox: a submission, or why it can't be read."""

    path: Path
    place: Place
    submission: SignedSubmission | None
    failure: Failure | None = None


class AgreedStanding(msgspec.Struct, frozen=True, kw_only=True):
    """Where a submission stood with all validators when a race's field was fixed: how many of `speakers` let it through
    the gate or rejected it, and how many passed it on the suite, with how many it takes."""

    is_racing: bool
    state: Literal["accepted", "rejected", "held", "cooldown"]
    accepts: int
    rejects: int
    speakers: int
    needed: int
    suite_passes: int
    suite_finished: int
    suite_needed: int
    allowed_block: int = 0  # of a cooldown


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The validator's answer to one submission, for the miner to read."""

    agent_version_id: str
    name: str
    hotkey: str
    state: ReceiptState
    submitted_block: int
    next_allowed_block: int
    failure: Failure | None = None
    report: GateReport | None = None
    qualifying_e4: int | None = None  # mean score on the suite, once it is known
    agreed: AgreedStanding | None = None  # at the last close, where several validators share races
    held_until: int = 0  # the block from which a hold by a heuristic counts as accepted


class Inbox:
    """Submissions under `root/new`, receipts under `root/receipts`."""

    def __init__(self, root: Path) -> None:
        self._new = root / "new"
        self._receipts = root / "receipts"

    def put(self, submission: SignedSubmission) -> Path:
        """Hand in a submission; the same version again replaces its file. Raises ArenaError V2060 when it can't."""
        name = f"{submission.agent_version_id}.json"
        time_ms = min(max(0, submission.submitted_ms), _TIME_MS_MAX)
        return _write_whole(self._new / name, msgspec.json.encode(submission), time_ns=time_ms * 1_000_000)

    def pending(self, after: Place | None = None) -> Iterator[InboxEntry]:
        """Entries in the order of submission, then of id; an unreadable one with its failure.

        `after`: only those behind this place. Each is read when it is asked for; one that comes or goes meanwhile may
        be met or not, every other one is met once. Raises ArenaError V2185 while the folder can't be read.
        """
        while places := self._places(after):
            for place in places:
                entry = _read_entry(self._new / place[1], place)
                if entry is not None:
                    yield entry
            after = places[-1]

    def _places(self, after: Place | None) -> list[Place]:
        """The next places that are taken, in order."""
        try:
            with os.scandir(self._new) as found:
                taken = (place for one in found if one.name.endswith(".json") and (place := _place(one)) is not None)
                return heapq.nsmallest(NAMES_PER_LOOK, (place for place in taken if after is None or place > after))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ArenaError("V2185", f"{self._new}: {error.strerror}") from error

    def answer(self, entry: InboxEntry, receipt: Receipt) -> None:
        """Write the receipt, then take the entry away. Raises ArenaError V2060 when the folder can't be written."""
        self.put_receipt(receipt)
        self.discard(entry)

    def put_receipt(self, receipt: Receipt) -> None:
        """Write or replace a receipt. Raises ArenaError V2060 when the folder can't be written."""
        _write_whole(self._receipts / f"{receipt.agent_version_id}.json", msgspec.json.encode(receipt))

    def discard(self, entry: InboxEntry) -> None:
        """Take an entry away that deserves no receipt. An entry that is gone already is no failure."""
        try:
            entry.path.unlink(missing_ok=True)
        except OSError as error:
            raise ArenaError("V2060", f"{entry.path}: {error.strerror}") from error

    def take_back(self, agent_version_id: str) -> None:
        """Take the entry of a version away, if it is still there. Raises ArenaError V2060."""
        path = self._new / f"{agent_version_id}.json"
        self.discard(InboxEntry(path=path, place=(0, path.name), submission=None))

    def receipt(self, agent_version_id: str) -> Receipt | None:
        """The receipt of one version, or None while there is no answer."""
        path = self._receipts / f"{agent_version_id}.json"
        return _read_receipt(path) if path.is_file() else None

    def receipts(self, hotkey: str) -> list[Receipt]:
        """Every readable receipt of a hotkey, latest block first."""
        found = [_read_receipt(path) for path in sorted(self._receipts.glob("*.json"))]
        own = [receipt for receipt in found if receipt is not None and receipt.hotkey == hotkey]
        return sorted(own, key=lambda receipt: -receipt.submitted_block)


def _place(found: os.DirEntry[str]) -> Place | None:
    """None where nothing lies any more. Raises OSError."""
    try:
        return found.stat(follow_symlinks=False).st_mtime_ns, found.name
    except FileNotFoundError:
        return None


def _read_entry(path: Path, place: Place) -> InboxEntry | None:
    """One entry, whatever lies there: a pipe, a folder or a device is looked at without being waited for. None where
    nothing lies any more: what is put there next is not to be taken for it."""
    try:
        read = _read_submission(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        code = "A1009" if error.errno in _NO_FILE else "V2185"  # this host's trouble: the entry waits for better times
        read = Failure(code=code, detail=f"{path.name!a}: {error.strerror}")
    if isinstance(read, Failure):
        return InboxEntry(path=path, place=place, submission=None, failure=read)
    return InboxEntry(path=path, place=place, submission=read)


def _read_submission(path: Path) -> SignedSubmission | Failure:
    """What the file holds. Raises OSError."""
    data = _read_plain_file(path)
    if data is None:
        return _unreadable(path, "not a plain file")
    if len(data) > ENTRY_BYTES_MAX:
        return _unreadable(path, f"more than {ENTRY_BYTES_MAX} bytes")
    try:
        submission = msgspec.json.decode(data, type=SignedSubmission)
    except UNREADABLE_JSON as error:
        return _unreadable(path, str(error))
    if canonical_hotkey(submission.hotkey) is None or len(submission.name) > NAME_CHARS_MAX:
        return _unreadable(path, "the hotkey is no address, or the name no name")
    return submission


def _read_plain_file(path: Path) -> bytes | None:
    """The file's first ENTRY_BYTES_MAX + 1 bytes; None for anything but a plain file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return stream.read(ENTRY_BYTES_MAX + 1)


def _unreadable(path: Path, reason: str) -> Failure:
    return Failure(code="A1009", detail=f"{path.name!a}: {reason}")


def _read_receipt(path: Path) -> Receipt | None:
    try:
        return msgspec.json.decode(_read_plain_file(path) or b"", type=Receipt)
    except (OSError, *UNREADABLE_JSON):
        return None  # of another version of this software: the validator writes it again when it is asked again


def _write_whole(path: Path, data: bytes, *, time_ns: int | None = None) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)  # 0600, its own
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            if time_ns is not None:
                os.utime(stream.fileno(), ns=(time_ns, time_ns))
            os.fsync(stream.fileno())
        move_into_place(Path(scratch), path)
    except OSError as error:
        raise ArenaError("V2060", f"{path}: {error.strerror}") from error
    return path
