"""The exporter: one pass over a range of a validator's log, from the store into a folder that can be checked offline.

Every record of the range is in `log/`, whole or as a stub; nothing goes out that the release rule holds back;
memory is bounded by some pages of records and a shard, whatever the log's length. The folder appears when it is whole:
an export that was killed is begun anew. It reads the store and never writes to it. Verification makes an export again
with the same `Writing` and `complete`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from arena.chain.port import Signer, Verifier
from arena.export import assembly
from arena.export.agents import Supplement, gather_supplement, is_source_open, write_agents
from arena.export.card import CARD, render_card
from arena.export.files import (
    LAYOUT,
    LOG,
    LOG_ROWS_PER_ROW,
    MANIFEST,
    REFERENCES,
    SCRUBBED,
    VIEWS,
    LinesFile,
    describe,
    read_manifest,
    shard_name,
    write_manifest,
    write_named,
)
from arena.export.forms import ParquetFile, convert
from arena.export.libraries import Libraries
from arena.export.model import Cursor, LogRange, Manifest, Request, ShardFile
from arena.export.row import row_of
from arena.policy import Policy
from arena.records.body import decode_content
from arena.records.log import LogStart, LogWalk, read_checkpoint, sign_checkpoint
from arena.records.model import ReleaseRecord, SignedRecord, Subject
from arena.records.verification import batches_of
from arena.visibility.rule import embargoed_races
from foundation.durable_files import whole_folder
from foundation.errors import ArenaError
from foundation.long_work import PhaseProgress, rare_collections

if TYPE_CHECKING:
    from arena.store.postgres import PostgresStore


PAGE = 128
PAGES_AHEAD = 3  # of each stage: a page is a few megabytes, and a shard's end delays no stage before it
CHECKPOINTS = "checkpoints"

T = TypeVar("T")


async def export_records(
    store: PostgresStore,
    request: Request,
    folder: Path,
    *,
    verify_signature: Verifier,
    software: str,
    now_ms: int,
    start: Cursor | None = None,
    signer: Signer | None = None,
    libraries: Libraries | None = None,
    progress: PhaseProgress | None = None,
) -> Manifest:
    """Export what `request` asks for into `folder`; a finished export of the same request stays as it is.

    `now_ms` (unix milliseconds): what races hold whose embargo has ended by then goes out, sources of winners among it.
    `start`: the cursor of an earlier export (`continued`). `libraries`: what they find in rows is counted. With
    `signer`, the log's own hotkey, the range ends at the log's head under a checkpoint signed for the export, and the
    manifest is signed; without, at the newest stored one.
    Raises ArenaError V2027 for a folder that holds something else, that another export writes to or that can't be
    written, V2053 when no checkpoint covers the range, V2030 for a request nothing can be made of, V2050 when the log
    does not lead to the checkpoint, V2021 when the server is away.
    """
    assembly.check_request(request)
    begin = start or Cursor(validator=request.validator)
    if (folder / MANIFEST).exists():
        manifest = read_manifest(folder)
        if manifest.request != request or manifest.log.start != begin:
            raise ArenaError("V2027", f"{folder} holds a finished export of another request")
        return manifest
    # of two threads, one compresses the log's lines and one completes a shard
    with whole_folder(folder) as made, ThreadPoolExecutor(max_workers=2) as threads, rare_collections():
        log, releases = await _log_range(store, begin, verify_signature, signer, now_ms)
        released = {release.race_id: release for _, release in releases}
        selection = assembly.Selection(request, released, log.start, log.embargoed)
        supplement = await gather_supplement(store, log, request, selection)
        writing = Writing(made, request, log, supplement, threads)
        writing.libraries, writing.found = libraries, libraries.found if libraries else msgspec.UNSET
        assembled = (
            await asyncio.to_thread(assembly.assemble, page, selection, log.last_seq, writing.policies)
            async for page in _ahead(_pages(store, log, selection))
        )
        async for rows in _ahead(assembled):
            await asyncio.to_thread(writing.take, rows)
            if progress:
                progress(writing.walk.seq - log.first_seq + 1, log.last_seq - log.first_seq + 1)
        cursor = await asyncio.to_thread(writing.finish)
        if signer and not log.end_note:
            log = writing.log = msgspec.structs.replace(log, end_note=sign_checkpoint(writing.walk.checkpoint, signer))
        elif writing.walk.checkpoint != (end := read_checkpoint(log.end_note, verify_signature)):
            detail = f"the log of {log.validator} does not lead to its checkpoint of {end.size} records"
            raise ArenaError("V2050", detail)
        for agent in writing.tally.agents:
            if agent not in supplement.kept and is_source_open(supplement.promotions.get(agent), now_ms):
                supplement.sources[agent] = (await store.source(agent) or "").encode()
        layout = resources.files("arena.export").joinpath(LAYOUT).read_bytes()
        before = {
            release.race_id: (record.seq, msgspec.json.encode(assembly.log_row(record)))
            for record, release in releases
            if record.seq < log.first_seq
        }
        manifest = await asyncio.to_thread(complete, writing, cursor, before, layout, software, now_ms)
        write_manifest(made, manifest, signer)
        return manifest


def continued(previous: Manifest, request: Request) -> Cursor:
    """The cursor a request goes on from. Raises ArenaError V2030 when it asks for other rows than the export before."""
    before = previous.request
    if (before.validator, before.filters) != (request.validator, request.filters):
        raise ArenaError("V2030", "it has another validator or other filters")
    if set(before.pools) != set(request.pools):
        raise ArenaError("V2030", f"it is of the pools {', '.join(before.pools)}")
    return previous.cursor


class Tally:
    """What the rows of an export come to."""

    def __init__(self) -> None:
        self.records, self.withheld = Counter[str](), Counter[str]()
        self.quarantined: list[int] = []
        self.scrubbed = 0
        self.policies, self.partitions, self.races = set[str](), set[str](), set[str]()
        self.agents: dict[str, Subject] = {}  # by agent version id
        self.runs = Counter[str]()  # trajectories by agent version id
        self.references: dict[int, bytes] = {}  # lines of log rows by record number
        self.referred = set[str]()  # races of these, whose releases have to be shown too

    def add(self, row: assembly.ExportRow) -> None:
        """Count one row."""
        if row.withheld:
            self.withheld[row.withheld] += 1
            self.quarantined += [row.seq] if row.withheld == "undecodable" else []
        else:
            self.records[row.kind] += 1
        for one in row.references:
            self.references[one.seq] = msgspec.json.encode(one)
            self.referred.add(assembly.race_of(decode_content(bytes(one.content or b""))))
        if row.race_id and (row.trajectory or not row.withheld):
            self.races.add(row.race_id)
        if row.trajectory:
            evaluation = row.trajectory.evaluation
            agent = evaluation.subject.agent_version_id
            self.agents.setdefault(agent, evaluation.subject)
            self.runs[agent] += 1
            self.scrubbed += row.is_scrubbed
            self.policies.add(evaluation.conditions.policy_sha256)
            self.partitions |= {evaluation.context.partition_sha256} - {""}
            self.races |= {assembly.race_of(row.trajectory.content)} - {""}


class Writing:
    """The writing end: counts rows and cuts shards. One call at a time."""

    def __init__(
        self,
        folder: Path,
        request: Request,
        log: LogRange,
        supplement: Supplement,
        threads: Executor,
        on_files: Callable[[Sequence[ShardFile]], None] = lambda _: None,
    ) -> None:
        """`on_files` is called with the files of each complete shard."""
        self.folder, self.request, self.log = folder, request, log
        self.supplement, self._threads, self._on_files = supplement, threads, on_files
        self.policies = {name: msgspec.json.decode(text, type=Policy) for name, text in supplement.policies.items()}
        self.walk, self.tally, self.files = LogWalk(log.start), Tally(), list[ShardFile]()
        self.libraries: Libraries | None = None
        self.found: dict[str, dict[str, int]] | msgspec.UnsetType = msgspec.UNSET  # by them
        self._front: LogStart | None = None  # where the first record waits for its release
        self._races = set[str]()  # of which records behind that went out
        self._rows = self._trajectories = self._shards = 0  # of the shard being written; shards in all
        self._lines: dict[str, LinesFile] = {}
        self._view: ParquetFile | None = None
        self._completing: Future[list[ShardFile]] | None = None

    def take(self, rows: Sequence[assembly.ExportRow]) -> None:
        """Write some rows. Raises ArenaError V2050 for one that does not follow the last."""
        segment, most = list[assembly.ExportRow](), self.request.rows_per_shard
        for row in rows:
            if self._trajectories >= most or self._rows >= most * LOG_ROWS_PER_ROW:
                self._write(segment)
                self._end_shard()
                segment = []
            is_released = row.withheld != "unreleased" and row.race_id not in self.log.embargoed
            if not is_released and self._front is None:
                self._front = self.walk.position()
            elif is_released and row.race_id and self._front is not None:
                self._races.add(row.race_id)
            self.walk.follow(row)
            self.tally.add(row)
            segment.append(row)
            self._rows += 1
            self._trajectories += row.trajectory is not None
        self._write(segment)

    def finish(self) -> Cursor:
        """Complete the last shard: all rows were taken. Where the next export goes on: in front of the first record
        that waits."""
        self._end_shard()
        self._await_completed()
        front = msgspec.structs.asdict(self._front or self.walk.position())
        return Cursor(**front, races=tuple(sorted(self._races)), exported_to=self.walk.seq)

    def _write(self, rows: Sequence[assembly.ExportRow]) -> None:
        """Add rows to the shard. Returns when every file has taken them."""
        if not rows:
            return
        written = self._threads.submit(self._part(LOG).write, [row.line for row in rows])
        shown = [(row.trajectory, row.is_scrubbed) for row in rows if row.trajectory is not None]
        scrubbed = [msgspec.json.encode(one) for one, is_scrubbed in shown if is_scrubbed]
        if scrubbed:
            self._part(SCRUBBED).write(scrubbed)
        if self.libraries is not None:
            self.libraries.look([*(row.line for row in rows if not row.withheld), *scrubbed])
        if shown and self.request.forms:
            if self._view is None:
                self._view = ParquetFile(self.folder / VIEWS / "parquet" / f"{self._shards:06d}.parquet")
            for trajectory, _ in shown:
                self._view.add(row_of(trajectory, self.supplement.names, self.policies))
        written.result()

    def _part(self, part: str) -> LinesFile:
        if part not in self._lines:
            self._lines[part] = LinesFile(self.folder / part / shard_name(self._shards))
        return self._lines[part]

    def _end_shard(self) -> None:
        """Let the shard be completed while the next one is written; one at a time."""
        self._await_completed()
        if self._lines:
            lines = list(self._lines.values())
            self._completing = self._threads.submit(self._completed, self._shards, lines, self._view)
            self._lines, self._view, self._rows, self._trajectories = {}, None, 0, 0
            self._shards += 1

    def _completed(self, number: int, lines: list[LinesFile], view: ParquetFile | None) -> list[ShardFile]:
        """Complete every file of a shard, and make the other forms: the files, on disk for good."""
        for file in lines:
            file.close()
        files = [(file.path, file.rows) for file in lines]
        if view is not None:
            view.close()
            files.append((view.path, view.rows))
            for form in self.request.forms[1:]:
                files += convert(form, view.path, self.folder / VIEWS / form, number, self.request.arguments)
        return [describe(self.folder, path, rows) for path, rows in files]

    def _await_completed(self) -> None:
        if self._completing is not None:
            files, self._completing = self._completing.result(), None
            self._on_files(files)
            self.files += files


def complete(
    writing: Writing,
    cursor: Cursor,
    releases: Mapping[str, tuple[int, bytes]],
    layout: bytes,
    software: str,
    exported_ms: int,
) -> Manifest:
    """Write what stands beside log and views, and make the manifest. `releases`: those in front of the range by race,
    as number and line; `layout`: FORMATS.md."""
    folder, tally, log, supplement = writing.folder, writing.tally, writing.log, writing.supplement
    promoted = [supplement.promotions[agent] for agent in tally.agents if agent in supplement.promotions]
    outside = [one for one in promoted if one.seq in supplement.rows]
    references = tally.references | {one.seq: supplement.rows[one.seq] for one in outside}
    for race_id in tally.races | tally.referred | {one.race_id for one in outside}:
        if race_id in releases:
            references.update([releases[race_id]])
    files, agents = write_agents(folder, tally.agents, tally.runs, tally.policies, supplement, exported_ms)
    files += [*writing.files, write_named(folder, LAYOUT, layout, 0)]
    if references:
        with contextlib.closing(LinesFile(folder / REFERENCES)) as lines:
            lines.write([references[seq] for seq in sorted(references)])
        files.append(describe(folder, folder / REFERENCES, len(references)))
    for size, note in {log.first_seq - 1: log.start_note, log.last_seq: log.end_note}.items():
        if note:
            files.append(write_named(folder, f"{CHECKPOINTS}/{log.validator}-{size}.txt", note.encode(), 1))
    manifest = Manifest(
        exported_ms=exported_ms,
        request=writing.request,
        log=log,
        cursor=cursor,
        records=dict(sorted(tally.records.items())),
        withheld=dict(sorted(tally.withheld.items())),
        quarantined=tuple(tally.quarantined),
        trajectories=tally.runs.total(),
        scrubbed=tally.scrubbed,
        libraries=writing.found,
        policies=tuple(sorted(tally.policies)),
        partitions=tuple(sorted(tally.partitions)),
        races=tuple(sorted(tally.races)),
        files=tuple(sorted(files, key=lambda file: file.path)),
        software=software,
    )
    licences = {name: policy.traces_licence for name, policy in writing.policies.items()}
    card = write_named(folder, CARD, render_card(manifest, agents, licences).encode(), 0)
    return msgspec.structs.replace(manifest, files=(*manifest.files, card))


async def _pages(store: PostgresStore, log: LogRange, selection: assembly.Selection) -> AsyncIterator[assembly.Page]:
    async for page in batches_of(store.records(log.validator, after_seq=log.start.after_seq), PAGE):
        batch = [record for record in page if record.seq <= log.last_seq]
        if not batch:
            break
        yield await assembly.load_page(store, log.validator, batch, selection)


async def _ahead(items: AsyncIterator[T]) -> AsyncIterator[T]:
    """The same items, some of them made while one before is used."""
    made, slots = asyncio.Queue[T | None](), asyncio.Semaphore(PAGES_AHEAD)

    async def fill() -> None:
        await slots.acquire()
        async for item in items:
            made.put_nowait(item)
            await slots.acquire()

    filling = asyncio.ensure_future(fill())
    filling.add_done_callback(lambda _: made.put_nowait(None))
    try:
        while (item := await made.get()) is not None:
            slots.release()
            yield item
        await filling  # what ended it, if not the last item
    finally:
        filling.cancel()


async def _log_range(
    store: PostgresStore, start: Cursor, verify_signature: Verifier, signer: Signer | None, now_ms: int
) -> tuple[LogRange, list[tuple[SignedRecord, ReleaseRecord]]]:
    """The range that an export from `start` covers, and the releases up to its end."""
    validator = start.validator
    stored = await store.checkpoints(validator, after_size=max(0, start.after_seq - 1))
    start_note = next((point.note for point in stored if point.size == start.after_seq), "")
    head = await store.head(validator)
    if signer and signer.hotkey != validator:
        raise ArenaError("V2053", f"{signer.hotkey} can't sign a checkpoint of the log of {validator}")
    if signer and head.seq > max([point.size for point in stored], default=0):
        note, anchor_block, last_seq = "", 0, head.seq  # signed once the range was read
        walk = LogWalk(LogStart(validator=validator))
        async for leaf in store.leaves(validator, to_seq=start.after_seq):
            walk.follow(leaf)
        if walk.checkpoint != LogWalk(start).checkpoint:
            raise ArenaError("V2050", f"the log of {validator} does not lead to where the export begins")
    else:
        covering = [point for point in stored if start.after_seq <= point.size <= head.seq]
        if not covering:
            raise ArenaError("V2053", f"{validator} after record {start.after_seq}")
        note, anchor_block = covering[-1].note, covering[-1].anchor_block
        last_seq = read_checkpoint(note, verify_signature).size
    releases = [pair async for pair in assembly.releases_in(store, validator, last_seq)]
    log = LogRange(
        validator=validator,
        first_seq=start.after_seq + 1,
        last_seq=last_seq,
        start=start,
        end_note=note,
        start_note=start_note,
        anchor_block=anchor_block,
        embargoed=tuple(sorted(embargoed_races({release.race_id: release for _, release in releases}, now_ms))),
    )
    return log, releases
