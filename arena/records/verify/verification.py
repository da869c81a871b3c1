"""Verification of whole logs: every record inspected, then held against the ones before it and against checkpoints.

Verifying trusts nothing but the caller's signature check; it hashes the bytes it is given and never
re-canonicalises. Any changed byte, dropped, doubled or swapped record becomes a `Defect` that names the first record
concerned; a cut tail needs the head (or a checkpoint) to be seen. Memory does not grow with the bytes of a log, only
with its number of records. It reads and never writes. With processes or without, from a store or an export, it is one
path: entries -> `inspect` -> `LogCheck`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from arena.chain.port import Subtensor, Verifier
from arena.records.log.anchors import note_sha256, require_anchor
from arena.records.log.checkpoint import Checkpoint, read_checkpoint
from arena.records.log.filing import filing_of
from arena.records.model import EvaluationRecord, SignedRecord
from arena.records.verify.inspection import Entry, RecordFinding, entry_of
from arena.records.verify.log_check import LogCheck, LogStart
from arena.records.verify.report import DEFECTS_KEPT, AnchorFacts, Defect, VerifyReport
from arena.records.verify.workers import Inspector, open_inspector
from arena.store.bodies import restore_bodies
from arena.store.port import BodyFrame, Store, StoredBody, StoredCheckpoint
from foundation.errors import ArenaError
from foundation.garbage import rare_collections
from foundation.progress import PhaseProgress

__all__ = [
    "DEFECTS_KEPT",
    "Defect",
    "LogCheck",
    "LogStart",
    "VerifyReport",
    "verify_store",
]

T = TypeVar("T")

BATCH = 128  # records that are loaded, inspected and taken together
LEAVES = 5_000

BodiesOf = Callable[[Sequence[str], str], Awaitable[Sequence[StoredBody | BodyFrame]]]

_SHA256 = re.compile("[0-9a-f]{64}")
_EVALUATION = str(EvaluationRecord.__struct_config__.tag)


async def verify_store(
    store: Store,
    verify_signature: Verifier,
    *,
    checkpoints: Sequence[Checkpoint] = (),
    since: Sequence[Checkpoint] = (),
    subtensor: Subtensor | None = None,
    processes: int = 0,
    progress: PhaseProgress | None = None,
) -> VerifyReport:
    """Verify every log of a store against its heads, its stored checkpoints and these. Records appended meanwhile are
    verified too.

    `since`: up to these, logs are only read as leaves (chain, tree and the signed root), and in full after them.
    `subtensor`: compare anchors with the chain; without it they are listed as unchecked. Raises ArenaError V2021,
    V2052, and U3030 when the chain is away.
    """
    begins = {point.validator: point.size for point in since}
    with rare_collections():
        async with open_inspector(verify_signature, processes) as inspector:
            check = LogCheck([*checkpoints, *since])
            for validator in await store.validators():
                stored = await store.checkpoints(validator)
                _expect_stored(check, validator, stored, verify_signature)
                if to_seq := begins.get(validator, 0):
                    async for leaves in _batches(store.leaves(validator, to_seq=to_seq), LEAVES):
                        check.take_leaves(validator, leaves)
                        if progress:
                            progress(check.records, 0)
                await _take_log(check, store, validator, inspector, progress)
                for checkpoint in stored:
                    if checkpoint.anchor_block and checkpoint.note:
                        await _check_anchor(check, checkpoint, subtensor, verify_signature)
    return check.report()


def _expect_stored(
    check: LogCheck, validator: str, stored: Sequence[StoredCheckpoint], verify_signature: Verifier
) -> None:
    """Hold the log against its stored checkpoints; one that is not what it is stored as is a defect."""
    for checkpoint in stored:
        if not checkpoint.note:
            detail = f"block {checkpoint.anchor_block} is said to anchor it, and it is not stored"
            check.report_defect(validator, checkpoint.size, "checkpoint", detail)
            continue
        try:
            point = read_checkpoint(checkpoint.note, verify_signature)
        except ArenaError as error:
            check.report_defect(validator, checkpoint.size, "checkpoint", error.failure.detail)
            continue
        if (point.validator, point.size) == (validator, checkpoint.size):
            check.expect_checkpoint(point)
        else:
            detail = f"stored as of {checkpoint.size} records, signed by {point.validator} of {point.size}"
            check.report_defect(validator, checkpoint.size, "checkpoint", detail)


async def _take_log(
    check: LogCheck, store: Store, validator: str, inspector: Inspector, progress: PhaseProgress | None
) -> None:
    """The rest of a log, up to a head that did not move while its records were read."""
    while True:
        before = check.head(validator)
        rows = store.filed_records(validator, after_seq=before.seq)
        await _take(check, _loaded(rows, store.every_frame), inspector, progress)
        head = await store.head(validator)
        if head == check.head(validator) or before == check.head(validator):
            break
    check.expect_head(validator, head)


async def _check_anchor(
    check: LogCheck, checkpoint: StoredCheckpoint, subtensor: Subtensor | None, verify_signature: Verifier
) -> None:
    """Ask the chain whether it held this checkpoint in the block its anchor names; and the store, of which hash."""
    is_other = checkpoint.anchored_sha256 not in ("", note_sha256(checkpoint.note))
    wrong = "its anchor is stored under another hash than its note has" if is_other else ""
    if subtensor is not None:
        commitment = await subtensor.commitment(checkpoint.validator, checkpoint.anchor_block)
        try:
            require_anchor(checkpoint, commitment, verify_signature)
        except ArenaError as error:
            wrong = error.failure.detail
    anchor = AnchorFacts(
        validator=checkpoint.validator,
        size=checkpoint.size,
        block=checkpoint.anchor_block,
        is_checked=subtensor is not None,
    )
    check.take_anchor(anchor, wrong)


async def _take(
    check: LogCheck, batches: AsyncIterator[list[Entry]], inspector: Inspector, progress: PhaseProgress | None
) -> None:
    """Let batches be inspected, `inspector.depth` at a time, and take the findings in order."""
    running: deque[asyncio.Task[list[RecordFinding]]] = deque()
    try:
        async for batch in batches:
            running.append(asyncio.ensure_future(inspector.inspect(batch)))
            if len(running) >= inspector.depth:
                _take_all(check, await running.popleft(), progress)
        while running:
            _take_all(check, await running.popleft(), progress)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _take_all(check: LogCheck, findings: Sequence[RecordFinding], progress: PhaseProgress | None) -> None:
    for finding in findings:
        check.take(finding)
    if progress:
        progress(check.records, 0)


async def _loaded(records: AsyncIterable[SignedRecord], bodies_of: BodiesOf) -> AsyncIterator[list[Entry]]:
    """Records in batches, each evaluation with the body it names where one is stored."""
    async for batch in _batches(records):
        # The body an evaluation names, read as loosely as can be: the content may be no record at all.
        named = []
        wanted: dict[str, set[str]] = {}
        for record in batch:
            filing = filing_of(record.content)
            is_naming = filing is not None and filing.kind == _EVALUATION and _SHA256.fullmatch(filing.body_sha256)
            named.append(filing.body_sha256 if filing and is_naming else "")
            if named[-1]:
                wanted.setdefault(record.validator, set()).add(named[-1])
        found: dict[tuple[str, str], StoredBody | BodyFrame] = {}
        for validator, names in wanted.items():
            for body in await bodies_of(sorted(names), validator):
                if found.setdefault((validator, body.body_sha256), body) is body:
                    continue
                content, size = body.content, len(body.content)
                if isinstance(body, BodyFrame):
                    content, size = (await restore_bodies([body]))[0].content, body.size
                if len(content) != size or hashlib.sha256(content).hexdigest() != body.body_sha256:
                    found[validator, body.body_sha256] = body  # of several copies a damaged one is to be seen
        entries = []
        for record, name in zip(batch, named, strict=True):
            stored = found.get((record.validator, name))
            if stored is None:
                entries.append(entry_of(record))
            else:
                entries.append(entry_of(record, stored.content, stored.size if isinstance(stored, BodyFrame) else 0))
        yield entries


async def _batches(rows: AsyncIterable[T], size: int = BATCH) -> AsyncIterator[list[T]]:
    batch: list[T] = []
    async for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
