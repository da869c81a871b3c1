"""An export compared with evidence from outside: signed checkpoints that were kept elsewhere, and the chain.

An export carries its own checkpoints, and a forger with the validator's key could sign others. He cannot change what
was kept elsewhere or committed on chain. Only an export that verifies by itself is compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from arena.chain.port import Subtensor
    from arena.export.model import Manifest
    from arena.export.verify.verification import Wrong
    from arena.records.log.checkpoint import Checkpoint


def hold_against(folder: Path, points: Sequence[Checkpoint], subtensor: Subtensor | None) -> tuple[Wrong, ...]:
    """What of an export contradicts these checkpoints of its log, and the chain, where that is given.

    Raises typer.BadParameter for a checkpoint the export can't be compared with: of another log, or of a size outside
    of its range; and for a chain where the export names no block. U3030 when the chain is away.
    """
    from arena.export.writing.manifest import read_manifest

    manifest = read_manifest(folder)
    log = manifest.log
    for point in points:
        if point.validator != log.validator or not log.start.after_seq <= point.size <= log.last_seq:
            held = f"records {log.first_seq} to {log.last_seq} of {log.validator}"
            raise typer.BadParameter(
                f"the export holds {held}: it can't be compared with a checkpoint of {point.size} of {point.validator}"
            )
    if subtensor is not None and not log.anchor_block:
        raise typer.BadParameter("--chain: the export's last checkpoint was not on chain when it was exported")
    wrong = _wrong_points(folder, manifest, points) if points else ()
    return (*wrong, *_wrong_anchor(manifest, subtensor)) if subtensor is not None else wrong


def _wrong_points(folder: Path, manifest: Manifest, points: Sequence[Checkpoint]) -> tuple[Wrong, ...]:
    from arena.export.reading import read_rows
    from arena.export.verify.verification import Wrong
    from arena.export.writing.shards import LOG
    from arena.records.verify.log_check import LogCheck, LogStart
    from arena.store.port import LogLeaf

    log = manifest.log
    start = LogStart(validator=log.validator, after_seq=log.start.after_seq, head=log.start.head, peaks=log.start.peaks)
    check = LogCheck(points, starts=[start])
    for path in sorted(file.path for file in manifest.files if file.path.startswith(f"{LOG}/")):
        rows = read_rows(folder / path)
        leaves = [LogLeaf(seq=row.seq, prev=row.prev, content_sha256=row.content_sha256) for row in rows]
        check.take_leaves(log.validator, leaves)
    return tuple(
        Wrong(place=f"record {found.seq}", detail=f"{found.rule}: {found.detail}") for found in check.report().defects
    )


def _wrong_anchor(manifest: Manifest, subtensor: Subtensor) -> tuple[Wrong, ...]:
    from arena.chain.keys import verify as verify_signature
    from arena.export.verify.verification import Wrong
    from arena.export.writing.manifest import MANIFEST
    from arena.records.log.anchors import require_anchor
    from arena.store.port import StoredCheckpoint
    from foundation.errors import ArenaError

    log = manifest.log
    point = StoredCheckpoint(
        validator=log.validator, size=log.last_seq, note=log.end_note, signed_ms=0, anchor_block=log.anchor_block
    )
    try:
        require_anchor(point, asyncio.run(subtensor.commitment(log.validator, log.anchor_block)), verify_signature)
    except ArenaError as error:
        if error.failure.code != "V2050":
            raise
        return (Wrong(place=MANIFEST, detail=f"anchor: {error.failure.detail}"),)
    return ()
