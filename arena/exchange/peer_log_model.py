"""What is in the folder of held logs: one entry per (validator, race, note), and the files it names.

Promise: plain values. Rows count only with an entry that names them; rows without one are leftovers.
"""

from __future__ import annotations

import hashlib

import msgspec

from arena.exchange.port import HeldLog, LogDigest
from arena.records.verify.log_check import LogStart

ENTRY_VERSION = 1


class RowsFile(msgspec.Struct, frozen=True, kw_only=True):
    """Rows first_seq..last_seq of a log, one `LogRow` a line, zstd-compressed. `sha256` is of the file."""

    name: str
    sha256: str
    first_seq: int
    last_seq: int


class HeldEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One held log: its note, where it ends, and the files that hold its rows from the tally's start on, in order.

    `serial` grows with each entry of a folder. Qualifying entries of one validator share files: each adds one.
    """

    version: int = ENTRY_VERSION
    serial: int
    log: HeldLog
    note: str
    tally: LogDigest
    end: LogStart
    files: tuple[RowsFile, ...]

    @property
    def name(self) -> str:
        """Its file name, derived from what it is about."""
        return entry_name(self.log.validator, self.log.race_id, self.log.note_sha256)


def entry_name(validator: str, race_id: str, note_sha256: str) -> str:
    """The file name of an entry: no name that came from elsewhere is in it."""
    return hashlib.sha256(f"{validator}\n{race_id}\n{note_sha256}".encode()).hexdigest()[:32] + ".json"
