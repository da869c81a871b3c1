"""A day of the firehose as an export folder: signed, chained, under a checkpoint, as an exporter writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import zstandard

from arena.export.model import Manifest
from arena.records.body import decode_content
from arena.records.model import (
    AttemptRecord,
    BodyFrame,
    Payload,
    ReleasedProblem,
    ReleaseRecord,
    SignedRecord,
    StoredBody,
    VerdictRecord,
)
from problems.model import Pool
from tests.arena.export_stand import ExportLog, export
from tests.training.firehose import START_MS, Firehose, Made, real_episodes
from training.corpus.exports import Export, export_shards
from training.corpus.model import Quarantined, Trace

_BATCH = 100


def write_day(firehose: Firehose, folder: Path, count: int, **options: Any) -> Manifest:
    """An export of `count` made records in `folder`. `options`: as of `write_records`."""
    return write_records(firehose.make(count), folder, **options)


def write_real_day(folder: Path, trajectories: int) -> Path:
    """A signed export below `folder`, log and Parquet view, ten trajectories a shard: a few real episodes, repeated."""
    (folder / "arena").mkdir()
    made = real_episodes(folder / "arena", counts={"product": 2, "shop": 1}, is_in_process=True)
    write_day(Firehose(made), folder / "export", trajectories, rows_per_shard=10)
    return folder / "export"


def write_records(
    records: Iterable[Made], folder: Path, *, pool_of: Mapping[str, Pool] = {}, **fields: Any
) -> Manifest:
    """A signed export of any records, log and Parquet unless `fields` of the request say otherwise. `pool_of` gives
    some problems (by id) another pool than train."""
    log, released = _DayLog(), dict[str, ReleasedProblem]()
    payloads, bodies = list[Payload](), list[StoredBody]()
    for made in records:
        released[made.problem_id] = ReleasedProblem(
            problem_id=made.problem_id, pool=pool_of.get(made.problem_id, "train"), cluster_id=made.cluster_id
        )
        body_sha256 = made.evaluation.body_sha256
        about = {"subject": made.evaluation.subject, "context": made.evaluation.context}
        attempt_id = made.evaluation.attempt_id
        payloads.append(AttemptRecord(attempt_id=attempt_id, ended="evaluated", body_sha256=body_sha256, **about))
        payloads.append(made.evaluation)
        payloads += [VerdictRecord(verdict=made.verdict, **about)] if made.verdict else []
        bodies.append(StoredBody(body_sha256=body_sha256, content=made.body))
        if len(bodies) == _BATCH:
            log.add(payloads, bodies)
            payloads, bodies = [], []
    release = ReleaseRecord(race_id="race-1", batch_sha256="77", problems=tuple(released.values()), salt="99" * 32)
    log.add([*payloads, release], bodies)
    return export(log, folder, signer=log.signer, now_ms=START_MS, **{"formats": ("jsonl", "parquet")} | fields)


class _DayLog(ExportLog):
    """A log that holds bodies compressed and finds verdicts by their body: a day has tens of thousands."""

    def __init__(self) -> None:
        super().__init__()
        self._frames: dict[str, BodyFrame] = {}
        self._verdicts: dict[str, list[SignedRecord]] = {}

    async def append(self, records: Sequence[SignedRecord], bodies: Sequence[StoredBody] = (), finish=None):
        for record in records:
            payload = decode_content(record.content).payload
            if isinstance(payload, VerdictRecord):
                self._verdicts.setdefault(payload.verdict.body_sha256, []).append(record)
        compress = zstandard.ZstdCompressor(level=1).compress
        for one in bodies:
            size, content = len(one.content), compress(one.content)
            self._frames[one.body_sha256] = BodyFrame(body_sha256=one.body_sha256, content=content, size=size)
        return await super().append(records)

    async def frames(self, names: Sequence[str], validator=None, *, is_every=False) -> list[BodyFrame]:
        return [self._frames[name] for name in names if name in self._frames]

    async def verdicts_on(self, names: Sequence[str], validator=None) -> list[SignedRecord]:
        return [record for name in names for record in self._verdicts.get(name, ())]


def read_traces(export: Export) -> Iterator[Trace | Quarantined]:
    """The trajectories of an export in one process, shard after shard."""
    for shard in export_shards(export):
        yield from shard()
