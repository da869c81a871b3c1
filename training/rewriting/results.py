"""What a run of rewriting leaves on disk, and how a corpus takes it up.

The folder holds thoughts, never rows. A corpus reads the runs from their export again, puts each thought
before its call, and checks every one of them once more: a file that was changed, or is of another export, changes no
call and lifts nothing that does not stand (V2149).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from training.corpus.building import Sources
from training.corpus.exports import ViewShard
from training.corpus.model import ExecutedTrace, Quarantined, Trace
from training.corpus.selection import Shard
from training.rewriting.model import OmittedRun, Rewrite, RewriteReport
from training.rewriting.writing import broken, lifted, timeline_of

THOUGHTS, LEFT_OUT, REPORT = "thoughts.jsonl", "left_out.jsonl", "rewriting.json"


class LiftedShard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard in which runs with thoughts stand as if the model had chosen their calls; alone, or among the others.
    Calling it reads it."""

    shard: Shard
    rewrites: Mapping[str, Rewrite]  # by the trace's id
    prompt: str
    is_alone: bool = False

    def __call__(self) -> Iterator[Trace | Quarantined]:
        """Its rows, in order; a run whose thoughts do not stand is quarantined."""
        for row in self.shard():
            made = self.rewrites.get(row.trace_id) if isinstance(row, ExecutedTrace) else None
            if made is None or not isinstance(row, ExecutedTrace):
                if not self.is_alone:
                    yield row
                continue
            timeline = timeline_of(row)
            reason = "its calls are in no order" if timeline is None else broken(made, timeline)
            if timeline is None or reason is not None:
                yield Quarantined(place=row.source.place, code="V2149", detail=str(reason))
            else:
                yield lifted(row, timeline, made.thoughts, self.prompt, made.by)


def write_results(out: Path, found: Sequence[Rewrite | OmittedRun], report: RewriteReport) -> None:
    """Write the thoughts, what was left out, and the report. Raises ArenaError V2027."""
    made = (one for one in found if isinstance(one, Rewrite))
    left = (one for one in found if isinstance(one, OmittedRun))
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, rows in ((THOUGHTS, made), (LEFT_OUT, left)):
            write_whole(out / name, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        write_whole(out / REPORT, msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    except OSError as wrong:
        raise ArenaError("V2027", f"{out}: {wrong.strerror}") from None


def with_rewrites(sources: Sources, folders: Sequence[Path], prompt: str, *, is_alone: bool = False) -> Sources:
    """Sources in which runs with thoughts are lifted; without folders, as they are. The lineage names the files of
    thoughts beside the exports.

    `prompt` is the system prompt of the lifted rows; `is_alone` leaves every other run out. Raises ArenaError V2149 for
    a file that can't be read.
    """
    if not folders:
        return sources
    rewrites: dict[str, Rewrite] = {}
    hashes = set(sources.hashes)
    for folder in folders:
        try:
            data = (folder / THOUGHTS).read_bytes()
            rewrites |= {one.trace_id: one for one in msgspec.json.Decoder(Rewrite).decode_lines(data)}
        except (OSError, msgspec.DecodeError) as wrong:
            raise ArenaError("V2149", f"{folder / THOUGHTS}: {wrong}") from None
        hashes.add(hashlib.sha256(data).hexdigest())
    shards = tuple(
        LiftedShard(shard=with_calls(shard), rewrites=rewrites, prompt=prompt, is_alone=is_alone)
        for shard in sources.shards
    )
    return msgspec.structs.replace(sources, shards=shards, hashes=tuple(sorted(hashes)))


def with_calls(shard: Shard) -> Shard:
    """A shard of an export whose traces name every call that was executed; another shard as it is."""
    return msgspec.structs.replace(shard, keeps_calls=True) if isinstance(shard, ViewShard) else shard
