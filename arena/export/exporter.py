"""The exporter: one pass over a range of a validator's log, from the store into a folder that can be checked offline.

Every record of the range is in `log/`, whole or as a stub; nothing goes out that the release rule holds back;
memory is bounded by some pages of records and a shard, whatever the log's length. Killed at any instant and started
again with the same request it goes on behind the last finished shard; the manifest is written last. It reads the store
and never writes to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from arena.chain.port import Signer, Verifier
from arena.export import journal as journals
from arena.export.agents import AgentRow, gather_supplement, refer_to_promotions, write_supplement
from arena.export.assembly import Assembled, Page, assemble, load_page, log_row, signed_content
from arena.export.card import write_card
from arena.export.files import (
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
)
from arena.export.journal import Journal
from arena.export.model import Cursor, LogRange, Manifest, Request, ShardFile
from arena.export.row import ViewContext, row_of
from arena.export.selection import Selection, check_request, releases_of
from arena.records.log import Checkpoint, LogStart, LogWalk, checkpoint_of, read_checkpoint, sign_checkpoint
from arena.records.model import ReleaseRecord, SignedRecord
from arena.records.port import Store
from arena.visibility.rule import embargoed_races
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from foundation.garbage import rare_collections
from foundation.progress import PhaseProgress

if TYPE_CHECKING:
    from arena.export.parquet import ParquetFile


PAGE = 128
PAGES_AHEAD = 3  # of each stage: a page is a few megabytes, and a shard's end delays no stage before it
CHECKPOINTS = "checkpoints"

T = TypeVar("T")


async def export_records(
    store: Store,
    request: Request,
    folder: Path,
    *,
    verify_signature: Verifier,
    software: str,
    now_ms: int,
    start: Cursor | None = None,
    signer: Signer | None = None,
    progress: PhaseProgress | None = None,
) -> Manifest:
    """Export what `request` asks for into `folder`, or go on with such an export that was interrupted there.

    `now_ms` (unix milliseconds): what races hold whose embargo has ended by then goes out, sources of winners among it;
    an export that goes on keeps the time it was begun at. `start`: the cursor of an earlier export
    (`continued`). With `signer`, the log's own hotkey, the range ends at the log's head under a checkpoint signed for
    the export, and the manifest is signed; without, at the newest stored one.
    Raises ArenaError V2070 for a folder that holds something else, V2071 when no checkpoint covers the range, V2073 for
    a request nothing can be made of, V2050 when the log does not lead to the checkpoint, V2021 when the server is away,
    V2088 when a disk is full.
    """
    check_request(request)
    begin = start or Cursor(validator=request.validator)
    with journals.folder_held(folder):
        if (folder / MANIFEST).exists():
            manifest = read_manifest(folder)
            if manifest.request != request or manifest.log.start != begin:
                raise ArenaError("V2070", f"{folder} holds a finished export of another request")
            journals.forget(folder)
            return manifest
        journal = journals.load(folder, request, begin)
        require_views(request)
        try:
            # of two threads, one compresses the log's lines and one completes a shard
            with ThreadPoolExecutor(max_workers=2) as threads, rare_collections():
                if journal is None:
                    log = await _log_range(store, begin, verify_signature, signer, now_ms)
                    journal = Journal(request=request, log=log, here=begin, exported_ms=now_ms)
                    journals.save(folder, journal)
                journals.clear_unfinished(folder, journal)
                manifest = await _run(store, journal, folder, verify_signature, software, signer, progress, threads)
                write_manifest(folder, manifest, signer)
                journals.forget(folder)
                return manifest
        except OSError as error:  # of a file, since a server that went away is V2021
            raise ArenaError("V2088", f"{folder}: {error.strerror or error}") from error


def continued(previous: Manifest, request: Request) -> Cursor:
    """The cursor a request goes on from. Raises ArenaError V2073 when it asks for other rows than the export before."""
    before = previous.request
    if (before.validator, before.filters) != (request.validator, request.filters):
        raise ArenaError("V2073", "it has another validator or other filters")
    if set(before.pools) != set(request.pools):
        raise ArenaError("V2073", f"it is of the pools {', '.join(before.pools)}")
    return previous.cursor


async def _run(
    store: Store,
    journal: Journal,
    folder: Path,
    verify_signature: Verifier,
    software: str,
    signer: Signer | None,
    progress: PhaseProgress | None,
    threads: Executor,
) -> Manifest:
    """Write everything but the manifest, and make that."""
    log = journal.log
    releases = {record.race_id: record async for _, record in _releases(store, log.validator, log.last_seq)}
    selection = Selection(journal.request, releases_of(releases), log.start, log.embargoed)
    supplement = await gather_supplement(store, journal, selection)

    def keep(behind: Journal, files: list[ShardFile]) -> None:
        behind.files += files
        journals.save(folder, behind)

    writing = Writing(folder, journal, supplement.context(), threads, keep)
    first_seq, last_seq, row_bytes_max = log.first_seq, log.last_seq, journal.request.row_bytes_max
    assembled = (
        await asyncio.to_thread(
            assemble, page, selection, first_seq=first_seq, last_seq=last_seq, row_bytes_max=row_bytes_max
        )
        async for page in _ahead(_pages(store, journal, selection))
    )
    async for rows in _ahead(assembled):
        await asyncio.to_thread(writing.take, rows)
        if progress:
            progress(writing.walk.seq - first_seq + 1, last_seq - first_seq + 1)
    cursor = await asyncio.to_thread(writing.finish)
    journal.log = await _ended_log(store, journal, writing.walk, verify_signature, signer)
    needed = journal.tally.races | refer_to_promotions(journal, supplement)
    async for record, release in _releases(store, log.validator, log.start.after_seq):  # in front of the range
        if release.race_id in needed:
            row = log_row(record, content=record.content)
            journal.tally.references[str(record.seq)] = msgspec.json.encode(row).decode()
    files, agents = await write_supplement(store, folder, journal, supplement)
    if references := sorted(journal.tally.references.items(), key=lambda one: int(one[0])):
        with LinesFile(folder / REFERENCES) as lines:
            lines.write([line.encode() for _, line in references])
        files.append(describe(folder, folder / REFERENCES, len(references)))
    return await asyncio.to_thread(make_manifest, folder, journal, files, cursor, software, agents)


class Writing:
    """The writing end: counts rows and cuts shards. One call at a time."""

    def __init__(
        self,
        folder: Path,
        journal: Journal,
        context: ViewContext,
        threads: Executor,
        keep: Callable[[Journal, list[ShardFile]], None],
    ) -> None:
        """`keep` is called beside the next shard's rows with the journal behind a complete one and its files."""
        self._folder, self._context, self._threads, self._keep = folder, context, threads, keep
        self.journal, self.walk = journal, LogWalk(journal.here)
        self.rows = self._trajectories = 0  # of the shard being written
        self._shard: ShardWriter | None = None
        self._keeping: Future[list[ShardFile]] | None = None  # files of the shard that is being completed

    def take(self, rows: Sequence[Assembled]) -> None:
        """Write some rows. Raises ArenaError V2050 for one that does not follow the last."""
        segment, most = list[Assembled](), self.journal.request.rows_per_shard
        for row in rows:
            if self._trajectories >= most or self.rows >= most * LOG_ROWS_PER_ROW:
                self._write(segment)
                self._end_shard()
                segment = []
            is_released = row.withheld != "unreleased" and row.race_id not in self.journal.log.embargoed
            self.journal.waiting.note(self.walk.position, row.race_id, is_released=is_released)
            self.walk.follow(row)
            self.journal.tally.add(row)
            segment.append(row)
            self.rows += 1
            self._trajectories += row.trajectory is not None
        self._write(segment)

    def finish(self) -> Cursor:
        """Complete the shard being written, if there is one: all rows were taken. Where the next export goes on."""
        self._end_shard()
        self._await_kept()
        return self.journal.waiting.next_cursor(self.walk.position())

    def _write(self, rows: Sequence[Assembled]) -> None:
        if rows:
            if self._shard is None:
                request, number = self.journal.request, self.journal.shards
                self._shard = ShardWriter(self._folder, request, number, self._context, self._threads)
            self._shard.write(rows)

    def _end_shard(self) -> None:
        """Let the shard be completed while the next one is written; one at a time."""
        self._await_kept()
        if self._shard is not None:
            self.journal.shards += 1
            self.journal.here = self.walk.position()
            self._keeping = self._threads.submit(self._complete, journals.copy(self.journal), self._shard)
            self._shard, self.rows, self._trajectories = None, 0, 0

    def _await_kept(self) -> None:
        if self._keeping is not None:
            self.journal.files += self._keeping.result()
            self._keeping = None

    def _complete(self, behind: Journal, shard: ShardWriter) -> list[ShardFile]:
        files = shard.finish()
        self._keep(behind, files)
        return files


async def _pages(store: Store, journal: Journal, selection: Selection) -> AsyncIterator[Page]:
    validator, batch = journal.log.validator, list[SignedRecord]()
    async for record in store.records(validator, after_seq=journal.here.after_seq):
        if record.seq > journal.log.last_seq:
            break
        batch.append(record)
        if len(batch) == PAGE:
            yield await load_page(store, validator, batch, selection)
            batch = []
    if batch:
        yield await load_page(store, validator, batch, selection)


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
    store: Store, start: Cursor, verify_signature: Verifier, signer: Signer | None, now_ms: int
) -> LogRange:
    validator = start.validator
    stored = await store.checkpoints(validator, after_size=max(0, start.after_seq - 1))
    start_note = next((point.note for point in stored if point.size == start.after_seq), "")
    head = await store.head(validator)
    if signer and signer.hotkey != validator:
        raise ArenaError("V2071", f"{signer.hotkey} can't sign a checkpoint of the log of {validator}")
    if signer and head.seq > max([point.size for point in stored], default=0):
        note, last_seq, anchor_block = "", head.seq, 0  # signed when the pass comes to it
    else:
        covering = [point for point in stored if start.after_seq <= point.size <= head.seq]
        if not covering:
            raise ArenaError("V2071", f"{validator} after record {start.after_seq}")
        note, anchor_block = covering[-1].note, covering[-1].anchor_block
        last_seq = read_checkpoint(note, verify_signature).size
    releases = {record.race_id: record async for _, record in _releases(store, validator, last_seq)}
    return LogRange(
        validator=validator,
        first_seq=start.after_seq + 1,
        last_seq=last_seq,
        start=start,
        end_note=note,
        start_note=start_note,
        anchor_block=anchor_block,
        embargoed=tuple(sorted(embargoed_races(releases, now_ms))),
    )


async def _ended_log(
    store: Store, journal: Journal, walk: LogWalk, verify_signature: Verifier, signer: Signer | None
) -> LogRange:
    """The range whose records were all gone over, with the note they lead to. Raises ArenaError V2050, V2071.

    Where none is given, what is signed is the tree of the whole log: this pass made it, or it is read again.
    """
    log, came_to = journal.log, Checkpoint(validator=walk.validator, size=walk.seq, root=walk.root)
    if log.end_note:
        end = read_checkpoint(log.end_note, verify_signature)
    elif signer is None:
        raise ArenaError("V2071", f"{log.validator}: this export was begun with the hotkey that signs its end")
    elif walk.is_whole:
        end = came_to
    else:
        whole = LogWalk(LogStart(validator=log.validator))
        async for leaf in store.leaves(log.validator, to_seq=log.last_seq):
            whole.take(leaf)
        end = checkpoint_of(log.validator, whole.tree)
    if came_to != end or walk.seq != log.last_seq:
        raise ArenaError("V2050", f"the log of {log.validator} does not lead to its checkpoint of {end.size} records")
    if log.end_note or signer is None:
        return log
    return msgspec.structs.replace(log, end_note=sign_checkpoint(end, signer))


async def _releases(store: Store, validator: str, last_seq: int) -> AsyncIterator[tuple[SignedRecord, ReleaseRecord]]:
    """The release records of a log up to the end of a range; of two for one race the first counts."""
    seen: set[str] = set()
    async for record in store.records(validator, kinds=("release",)):
        if record.seq > last_seq:
            return
        content = signed_content(record.content, record.content_sha256)
        if content and isinstance(content.payload, ReleaseRecord) and content.payload.race_id not in seen:
            seen.add(content.payload.race_id)
            yield record, content.payload


def make_manifest(
    folder: Path,
    journal: Journal,
    beside: Sequence[ShardFile],
    cursor: Cursor,
    software: str,
    agents: Sequence[AgentRow],
) -> Manifest:
    """Write notes and card into `folder`: the manifest of an export of these shards and the files `beside` them."""
    log, files = journal.log, [*journal.files, *beside]
    for size, note in {log.first_seq - 1: log.start_note, log.last_seq: log.end_note}.items():
        if note:
            path = folder / CHECKPOINTS / f"{log.validator}-{size}.txt"
            path.parent.mkdir(exist_ok=True)
            write_whole(path, note.encode())
            files.append(describe(folder, path, 1))
    manifest = Manifest(
        exported_ms=journal.exported_ms,
        request=journal.request,
        log=log,
        cursor=cursor,
        files=tuple(sorted(files, key=lambda file: file.path)),
        software=software,
        **journal.tally.stated(),
    )
    return msgspec.structs.replace(manifest, files=(*manifest.files, write_card(folder, manifest, agents)))


def require_views(request: Request) -> None:
    """Load what writes views, where any is asked for. Raises ArenaError V2073: better now than half-way."""
    if request.forms:
        try:
            import arena.export.forms  # noqa: F401
        except ImportError as error:
            raise ArenaError("V2073", f"views need pyarrow: {error}") from error


class ShardWriter:
    """One shard being written: its files of lines and its Parquet file, each begun with its first row."""

    def __init__(self, folder: Path, request: Request, number: int, context: ViewContext, threads: Executor) -> None:
        """`folder` is the export's; lines are compressed on `threads`, beside the rows of the views."""
        self.number, self._context, self._threads = number, context, threads
        self._folder, self._request = folder, request
        self._lines: dict[str, LinesFile] = {}
        self._rows: ParquetFile | None = None

    def write(self, rows: Sequence[Assembled]) -> None:
        """Add rows, in log order. Returns when every file has taken them."""
        shown = [row.trajectory for row in rows if row.trajectory is not None]
        scrubbed = [row.trajectory for row in rows if row.trajectory is not None and row.is_scrubbed]
        lines = [row.line for row in rows if row.line]
        written = self._threads.submit(self._part(LOG).write, lines) if lines else None
        if scrubbed:
            self._part(SCRUBBED).write([msgspec.json.encode(one) for one in scrubbed])
        if shown and self._request.forms:
            file = self._parquet()
            for trajectory in shown:
                file.add(row_of(trajectory, self._context))
        if written:
            written.result()

    def finish(self) -> list[ShardFile]:
        """Complete every file, and make the other forms: the files as the manifest names them, on disk for good."""
        for lines in self._lines.values():
            lines.close()
        files = [(lines.path, lines.rows) for lines in self._lines.values()]
        if self._rows is not None:
            from arena.export.forms import convert

            self._rows.close()
            files.append((self._rows.path, self._rows.rows))
            for form in self._request.forms[1:]:
                view = self._folder / VIEWS / form
                files += convert(form, self._rows.path, view, self.number, self._request.arguments)
        return [describe(self._folder, path, rows) for path, rows in files]

    def _part(self, part: str) -> LinesFile:
        if part not in self._lines:
            self._lines[part] = LinesFile(self._folder / part / shard_name(self.number))
        return self._lines[part]

    def _parquet(self) -> ParquetFile:
        if self._rows is None:
            from arena.export.parquet import ParquetFile

            self._rows = ParquetFile(self._folder / VIEWS / "parquet" / f"{self.number:06d}.parquet")
        return self._rows
