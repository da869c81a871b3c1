"""The releases that are in an export: which races gave their problems away, of which pools."""

from __future__ import annotations

from pathlib import Path

from arena.export.reading import read_rows
from arena.export.writing.shards import LOG, REFERENCES
from arena.records.body import decode_content
from arena.records.model import ReleaseRecord


def read_releases(folder: Path) -> tuple[ReleaseRecord, ...]:
    """The release records of a verified export and of its references, each once, by their numbers. Raises ArenaError
    V2050 for a line that can't be read."""
    references = folder / REFERENCES
    paths = [*([references] if references.exists() else []), *sorted((folder / LOG).glob("*.jsonl.zst"))]
    found: dict[int, ReleaseRecord] = {}
    for path in paths:
        for row in read_rows(path):
            payload = None if row.content is None else decode_content(bytes(row.content)).payload
            if isinstance(payload, ReleaseRecord):
                found[row.seq] = payload
    return tuple(found[seq] for seq in sorted(found))
