"""A log in memory that an export reads, and small ways to fill it and to look at what came out."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from arena.chain.keys import generate_signer, verify
from arena.export.exporter import export_records
from arena.export.files import read_rows
from arena.export.model import Cursor, Filters, LogRow, Manifest, Request
from arena.records.body import decode_content
from arena.records.log import LogStart, LogWalk, MerkleFrontier, checkpoint_of, sign_checkpoint, signing_message
from arena.records.model import Payload, StoredBody, StoredCheckpoint, VerdictRecord
from arena.records.sequencer import Sequencer
from foundation.canonical import canonical_bytes
from tests.arena.log_stand import HOST, START_MS, Clock, MemoryLog, body, episode, release

replace = msgspec.structs.replace
SECRET = "sk-or-v1-" + hashlib.sha256(b"a key that was never one").hexdigest()
NOW_MS = START_MS + 86_400_000


class ExportLog(MemoryLog):
    """The part of a store that exports read, and the signer of its log."""

    def __init__(self) -> None:
        self.signer = generate_signer()
        super().__init__(self.signer.hotkey)
        self.sequencer = Sequencer(self, self.signer, Clock(), HOST)
        self.streams: dict[str, list[str]] = {}  # events of races, where a test says how they ended

    def add(self, payloads: Sequence[Payload], bodies: Sequence[StoredBody] = ()) -> None:
        asyncio.run(self.sequencer.append(payloads, bodies))

    def add_episode(self, problem: int, race_id: str = "r1", **options) -> None:
        payloads, body = episode(problem, race_id=race_id, **options)
        self.add(payloads, [body])

    def cursor_at(self, after_seq: int) -> Cursor:
        """The cursor behind a record, of an export that nothing waited for."""
        walk = LogWalk(LogStart(validator=self.validator))
        for record in self.log[:after_seq]:
            walk.take(record)
        return Cursor.at(walk.position())

    def checkpoint(self) -> None:
        """Sign the log as it stands."""
        tree = MerkleFrontier()
        for record in self.log:
            tree.append(signing_message(record.validator, record.seq, record.prev, record.content_sha256))
        note = sign_checkpoint(checkpoint_of(self.validator, tree), self.signer)
        self.signed.append(StoredCheckpoint(validator=self.validator, size=tree.size, note=note, signed_ms=1))

    async def records(self, validator=None, *, after_seq=0, kinds=(), race_id=None):
        for record in list(self.log):
            if record.seq > after_seq and (not kinds or _kind(record.content) in kinds):
                yield record

    async def events(self, stream):
        return self.streams.get(stream, [])

    async def verdicts_on(self, names, validator=None):
        found = []
        for record in self.log:
            payload = decode_content(record.content).payload if _kind(record.content) == "verdict" else None
            if isinstance(payload, VerdictRecord) and payload.verdict.body_sha256 in set(names):
                found.append(record)
        return found


def request_of(log: ExportLog, **fields) -> Request:
    filters = {name: fields.pop(name) for name in list(fields) if name in Filters.__struct_fields__}
    return Request(validator=log.validator, filters=Filters(**filters), **fields)


def export(
    log: ExportLog, folder: Path, *, start=None, signer=None, progress=None, now_ms=NOW_MS, **fields
) -> Manifest:
    return asyncio.run(
        export_records(
            log,
            request_of(log, **fields),
            folder,
            verify_signature=verify,
            software="agent-arena test",
            now_ms=now_ms,
            start=start,
            signer=signer,
            progress=progress,
        )
    )


def rows(folder: Path) -> list[LogRow]:
    return [row for path in sorted((folder / "log").glob("*")) for row in read_rows(path)]


def released_race(log: ExportLog, race_id: str, problems: Sequence[int] = (1, 2, 3), **options) -> None:
    """A race with an episode of each problem, and its release."""
    for problem in problems:
        log.add_episode(problem, race_id, **options)
    log.add([release(race_id, problems)])


def _kind(content: bytes) -> str:
    try:
        return str(msgspec.json.decode(content)["payload"]["kind"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return ""


def leaky_episode(log: ExportLog) -> None:
    """An episode whose query holds a credential."""
    content = canonical_bytes(replace(body(1), query=f"shirts, with {SECRET}"))
    name = hashlib.sha256(content).hexdigest()
    payloads, _ = episode(1)
    attempted, evaluated, judged = payloads
    verdict = replace(judged.verdict, body_sha256=name)
    log.add(
        [replace(attempted, body_sha256=name), replace(evaluated, body_sha256=name), replace(judged, verdict=verdict)],
        [StoredBody(body_sha256=name, content=content)],
    )
