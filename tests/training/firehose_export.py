"""A day of the firehose as an export folder: signed, chained, under a checkpoint, as an exporter writes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import zstandard

from arena.chain.keys import generate_signer, verify
from arena.export.exporter import export_records
from arena.export.model import Format, Manifest, Request
from arena.records.body import decode_content
from arena.records.log import first_head, head_after
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
from arena.records.port import StoredSubmission
from arena.records.sequencer import Sequencer
from problems.model import Pool
from tests.training.firehose import MACHINE, START_MS, Firehose, Made, real_episodes

_BATCH = 100


def write_day(
    firehose: Firehose,
    folder: Path,
    count: int,
    *,
    formats: Sequence[Format] = ("jsonl", "parquet"),
    pools: Sequence[Pool] = ("train",),
    pool_of: Mapping[str, Pool] = {},
    is_signed: bool = True,
    rows_per_shard: int = 1_000,
) -> Manifest:
    """An export of `count` made records in `folder`. `pool_of` gives some problems (by id) another pool than train."""
    return write_records(
        firehose.make(count),
        folder,
        formats=formats,
        pools=pools,
        pool_of=pool_of,
        is_signed=is_signed,
        rows_per_shard=rows_per_shard,
    )


def write_real_day(folder: Path, trajectories: int) -> Path:
    """A signed export below `folder`, log and Parquet view, ten trajectories a shard: a few real episodes, repeated."""
    (folder / "arena").mkdir()
    made = real_episodes(folder / "arena", counts={"product": 2, "shop": 1}, is_in_process=True)
    write_day(Firehose(made), folder / "export", trajectories, formats=("jsonl", "parquet"), rows_per_shard=10)
    return folder / "export"


def write_records(
    records: Iterable[Made],
    folder: Path,
    *,
    formats: Sequence[Format] = ("jsonl", "parquet"),
    pools: Sequence[Pool] = ("train",),
    pool_of: Mapping[str, Pool] = {},
    is_signed: bool = True,
    rows_per_shard: int = 1_000,
) -> Manifest:
    """The same of any records."""
    return asyncio.run(_write(records, folder, tuple(formats), tuple(pools), pool_of, is_signed, rows_per_shard))


async def _write(
    records: Iterable[Made],
    folder: Path,
    formats: tuple[Format, ...],
    pools: tuple[Pool, ...],
    pool_of: Mapping[str, Pool],
    is_signed: bool,
    rows_per_shard: int,
) -> Manifest:
    signer = generate_signer()
    log = _DayLog(signer.hotkey)
    ticks = iter(range(START_MS, START_MS + 86_400_000))
    sequencer = Sequencer(log, signer, lambda: next(ticks), MACHINE)
    released: dict[str, ReleasedProblem] = {}
    payloads: list[Payload] = []
    bodies: list[StoredBody] = []
    for made in records:
        released[made.problem_id] = ReleasedProblem(
            problem_id=made.problem_id, pool=pool_of.get(made.problem_id, "train"), cluster_id=made.cluster_id
        )
        payloads += _payloads(made)
        bodies.append(StoredBody(body_sha256=made.evaluation.body_sha256, content=made.body))
        if len(bodies) == _BATCH:
            await sequencer.append(payloads, bodies)
            payloads, bodies = [], []
    release = ReleaseRecord(race_id="race-1", batch_sha256="77", problems=tuple(released.values()), salt="99" * 32)
    await sequencer.append([*payloads, release], bodies)
    request = Request(validator=signer.hotkey, formats=formats, pools=pools, rows_per_shard=rows_per_shard)
    return await export_records(
        log,
        request,
        folder,
        verify_signature=verify,
        software="test",
        now_ms=START_MS,
        signer=signer if is_signed else None,
    )


def _payloads(made: Made) -> list[Payload]:
    about = {"subject": made.evaluation.subject, "context": made.evaluation.context}
    attempt = AttemptRecord(
        attempt_id=made.evaluation.attempt_id, ended="evaluated", body_sha256=made.evaluation.body_sha256, **about
    )
    judged = [VerdictRecord(verdict=made.verdict, **about)] if made.verdict else []
    return [attempt, made.evaluation, *judged]


class _DayLog:
    """The part of a store that a sequencer writes to and an exporter reads; bodies are held compressed."""

    def __init__(self, validator: str) -> None:
        self.validator = validator
        self._log: list[SignedRecord] = []
        self._frames: dict[str, BodyFrame] = {}
        self._verdicts: dict[str, list[SignedRecord]] = {}
        self._releases: list[SignedRecord] = []
        self._end = first_head(validator)
        self._compress = zstandard.ZstdCompressor(level=1).compress

    async def head(self, validator: str | None = None):
        return self._end

    async def append(self, records: Sequence[SignedRecord], bodies: Sequence[StoredBody] = (), finish=None):
        for record in records:
            payload = decode_content(record.content).payload
            if isinstance(payload, VerdictRecord):
                self._verdicts.setdefault(payload.verdict.body_sha256, []).append(record)
            if isinstance(payload, ReleaseRecord):
                self._releases.append(record)
        for body in bodies:
            self._frames[body.body_sha256] = BodyFrame(
                body_sha256=body.body_sha256, content=self._compress(body.content), size=len(body.content)
            )
        self._log += records
        self._end = head_after(records[-1])
        return self._end

    async def records(self, validator=None, *, after_seq=0, kinds=(), race_id=None):
        if kinds == ("settlement",):
            return
        for record in self._releases if "release" in kinds else self._log[after_seq:]:
            yield record

    async def submissions(self, states=()) -> list[StoredSubmission]:
        return []

    async def source(self, agent_version_id: str) -> str | None:
        return None

    async def frames(self, names: Sequence[str], validator=None) -> list[BodyFrame]:
        return [self._frames[name] for name in names if name in self._frames]

    async def verdicts_on(self, names: Sequence[str], validator=None) -> list[SignedRecord]:
        return [record for name in names for record in self._verdicts.get(name, ())]

    async def leaves(self, validator, *, after_seq=0, to_seq=None):
        for record in self._log[after_seq:to_seq]:
            yield record

    async def checkpoints(self, validator=None, *, after_size=0):
        return []
