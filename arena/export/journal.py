"""The journal of an export being written: what was decided at its start and what the finished shards hold.

It is put in place whole after each finished shard, so an export that was killed at any instant goes on behind
its last finished shard, towards the same end, with the same counts. It is gone once the manifest stands.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from arena.export.assembly import Assembled
from arena.export.files import CHECKSUM, LOG, MANIFEST, POLICIES, SCRUBBED, SIGNATURE, SOURCES, VIEWS
from arena.export.model import AgentTally, Cursor, LogRange, Request, ShardFile, Trajectory
from arena.export.selection import race_of
from arena.records.log import LogStart
from foundation.durable_files import SCRATCH, write_whole
from foundation.errors import ArenaError

JOURNAL = "export.journal"


class Waiting(msgspec.Struct):
    """What a walk has to remember for the next cursor: where the first record waits, and the races told behind it."""

    front: LogStart | None = None
    races: list[str] = []

    def note(self, here: Callable[[], LogStart], race_id: str, *, is_released: bool) -> None:
        """Look at the next record of a walk that stands `here`."""
        if not is_released and self.front is None:
            self.front = here()
        if is_released and race_id and self.front is not None and race_id not in self.races:
            self.races.append(race_id)

    def next_cursor(self, end: LogStart) -> Cursor:
        """The cursor for the export after the one that ends at `end`: in front of the first record that waits."""
        races = () if self.front is None else tuple(sorted(self.races))
        return msgspec.structs.replace(Cursor.at(self.front or end), races=races, exported_to=end.after_seq)


class ShardCounts(msgspec.Struct):
    """What the rows so far come to."""

    records: dict[str, int] = {}
    withheld: dict[str, int] = {}
    quarantined: list[int] = []
    trajectories: int = 0
    scrubbed: int = 0
    policies: set[str] = set()
    partitions: set[str] = set()
    races: set[str] = set()
    agents: dict[str, AgentTally] = {}  # by agent version id
    references: dict[str, str] = {}  # lines of LogRows by record number; JSON keys are text

    def add(self, row: Assembled) -> None:
        """Count one row."""
        if row.withheld:
            self.withheld[row.withheld] = self.withheld.get(row.withheld, 0) + 1
            if row.withheld == "undecodable":
                self.quarantined.append(row.seq)
        else:
            self.records[row.kind] = self.records.get(row.kind, 0) + 1
        for reference in row.references:
            self.references[str(reference.seq)] = msgspec.json.encode(reference).decode()
        if row.race_id and (row.trajectory or not row.withheld):
            self.races.add(row.race_id)
        if row.trajectory:
            self.add_trajectory(row.trajectory, is_scrubbed=row.is_scrubbed)

    def add_trajectory(self, trajectory: Trajectory, *, is_scrubbed: bool) -> None:
        """Count a trajectory, from its row or scrubbed."""
        evaluation = trajectory.evaluation
        agent = self.agents.setdefault(evaluation.subject.agent_version_id, AgentTally(evaluation.subject))
        agent.trajectories += 1
        self.trajectories += 1
        self.scrubbed += is_scrubbed
        self.policies.add(evaluation.conditions.policy_sha256)
        if evaluation.context.partition_sha256:
            self.partitions.add(evaluation.context.partition_sha256)
        if race := race_of(trajectory.content):
            self.races.add(race)

    def stated(self) -> dict[str, Any]:
        """The fields of the manifest that say so."""
        return {
            "records": dict(sorted(self.records.items())),
            "withheld": dict(sorted(self.withheld.items())),
            "quarantined": tuple(self.quarantined),
            "trajectories": self.trajectories,
            "scrubbed": self.scrubbed,
            "policies": tuple(sorted(self.policies)),
            "partitions": tuple(sorted(self.partitions)),
            "races": tuple(sorted(self.races)),
        }


class Journal(msgspec.Struct):
    """Everything an interrupted export needs to go on."""

    request: Request
    log: LogRange
    here: LogStart  # behind the last finished shard
    exported_ms: int  # when it was begun, unix milliseconds
    shards: int = 0  # finished
    waiting: Waiting = msgspec.field(default_factory=Waiting)
    tally: ShardCounts = msgspec.field(default_factory=ShardCounts)
    files: list[ShardFile] = []


def save(folder: Path, journal: Journal) -> None:
    """Put the journal in place."""
    write_whole(folder / JOURNAL, msgspec.json.encode(journal))


def copy(journal: Journal) -> Journal:
    """The journal as it is now."""
    return msgspec.json.decode(msgspec.json.encode(journal), type=Journal)


def load(folder: Path, request: Request, start: Cursor) -> Journal | None:
    """The journal of an interrupted export in this folder, None where nothing was begun.

    Raises ArenaError V2070 when the folder holds something else.
    """
    path = folder / JOURNAL
    if not path.exists():
        if any(entry.name != JOURNAL + SCRATCH for entry in folder.iterdir()):
            raise ArenaError("V2070", f"{folder} is not empty")
        return None
    try:
        journal = msgspec.json.decode(path.read_bytes(), type=Journal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArenaError("V2070", f"{path}: {error}") from error
    if journal.request != request or journal.log.start != start:
        raise ArenaError("V2070", f"{folder} holds an unfinished export of another request")
    return journal


def clear_unfinished(folder: Path, journal: Journal) -> None:
    """Remove what an interrupted shard or manifest left behind."""
    kept = {folder / file.path for file in journal.files}
    for name in (LOG, SCRUBBED, VIEWS, SOURCES, POLICIES):
        for path in (folder / name).rglob("*"):
            if path not in kept and not path.is_dir():
                path.unlink()
    for view in (folder / VIEWS).glob("*"):
        if not any(path.is_file() for path in view.rglob("*")):
            shutil.rmtree(view)
    for name in (CHECKSUM, SIGNATURE, *(file + SCRATCH for file in (CHECKSUM, SIGNATURE, MANIFEST, JOURNAL))):
        (folder / name).unlink(missing_ok=True)


def forget(folder: Path) -> None:
    """Remove the journal of a finished export."""
    (folder / JOURNAL).unlink(missing_ok=True)


@contextlib.contextmanager
def folder_held(folder: Path) -> Iterator[None]:
    """Hold an export's folder, made where missing, against other exports. Raises ArenaError V2070 when one runs."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ArenaError("V2070", f"another export is writing to {folder}") from error
    finally:
        os.close(descriptor)
