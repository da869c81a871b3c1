"""The releases that are in an export: which races gave their problems away, of which pools.

Every release record of the log range, and of the references outside it, each once, in the order of their
numbers. Rows of other kinds are passed over without being decoded whole. It reads an export that was verified before.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from arena.export.reading import read_lines
from arena.export.writing.shards import LOG, REFERENCES
from arena.records.body import decode_content
from arena.records.model import ReleaseRecord
from foundation.errors import ArenaError

_NULL = b"null"


class _ReleasePayload(msgspec.Struct):
    kind: str


class _ReleaseContent(msgspec.Struct):
    payload: _ReleasePayload


class _ReleaseLine(msgspec.Struct):
    seq: int
    content: msgspec.Raw = msgspec.Raw(_NULL)


_LINE = msgspec.json.Decoder(_ReleaseLine)
_CONTENT = msgspec.json.Decoder(_ReleaseContent)


def read_releases(folder: Path) -> tuple[ReleaseRecord, ...]:
    """The release records of an export in `folder`. Raises ArenaError V2050 for a line that can't be read."""
    references = folder / REFERENCES
    paths = [*([references] if references.exists() else []), *sorted((folder / LOG).glob("*.jsonl.zst"))]
    found: dict[int, ReleaseRecord] = {}
    for path in paths:
        for number, line in enumerate(read_lines(path), 1):
            try:
                row = _LINE.decode(line)
                content = bytes(row.content)
                if content == _NULL or _CONTENT.decode(content).payload.kind != "release":
                    continue
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ArenaError("V2050", f"{path.name}, line {number}: {error}") from error
            payload = decode_content(content).payload
            if isinstance(payload, ReleaseRecord):
                found[row.seq] = payload
    return tuple(found[seq] for seq in sorted(found))
