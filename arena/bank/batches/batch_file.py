"""Batch files: an open batch as bytes, and on disk readable by its owner only, checked whenever it is read.

Promise: a write either replaces the file whole or leaves the old one; a file in which any byte was changed is refused
(P4001, P4010), since it must be written exactly as we write it. The hash inside finds accidents; whether this is the
batch a race committed to is told by comparing with the race's opening.
"""

from __future__ import annotations

import hmac
from pathlib import Path

import msgspec

from arena.bank.batches.batch import SealedBatch, seal
from arena.bank.batches.private_file import write_private
from foundation.canonical import UNREADABLE_JSON
from foundation.errors import ArenaError
from problems.model import Pool, Problem
from problems.scoring.title_matching import AcceptedTitles

_VERSION, _VERSION_WITHOUT_TITLES = 3, 2


class _Titles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Accepted titles, titles and ids sorted."""

    name: str
    accepted: dict[str, tuple[str, ...]]


class _BatchFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The file's shape."""

    version: int
    race_id: str
    salt: str
    batch_sha256: str
    problems: tuple[Problem, ...]
    pools: tuple[Pool, ...]
    cluster_ids: tuple[str, ...]
    partition_sha256: str
    titles: _Titles | None = None


def write_batch(path: Path, batch: SealedBatch) -> None:
    """Write the batch with mode 0600, through a file beside it. Raises OSError when the folder can't be written."""
    write_private(path, encode_batch(batch))


def read_batch(path: Path) -> SealedBatch:
    """The batch in a file. Raises ArenaError P4001 when it can't be read, and what `decode_batch` raises."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ArenaError("P4001", f"{path}: {error.strerror or error}") from error
    return decode_batch(content, str(path))


def encode_batch(batch: SealedBatch) -> bytes:
    """The batch as JSON, salt and answers included."""
    held = _BatchFile(
        version=_VERSION if batch.titles else _VERSION_WITHOUT_TITLES,
        race_id=batch.race_id,
        salt=batch.salt,
        batch_sha256=batch.batch_sha256,
        problems=batch.problems,
        pools=batch.pools,
        cluster_ids=batch.cluster_ids,
        partition_sha256=batch.partition_sha256,
        titles=_written(batch.titles),
    )
    typed = msgspec.convert(msgspec.to_builtins(held), _BatchFile)  # an amount given as an integer becomes a float
    return msgspec.json.encode(typed)


def decode_batch(content: bytes, place: str) -> SealedBatch:
    """The batch in these bytes; `place` names them in errors.

    Raises ArenaError P4001 for bytes that are no JSON, P4010 for another shape, spelling or hash, and what `seal`
    raises for unsound problems and titles.
    """
    try:
        held = msgspec.json.decode(content, type=_BatchFile)
    except msgspec.ValidationError as error:
        raise ArenaError("P4010", f"{place}: {error}") from error
    except UNREADABLE_JSON as error:
        raise ArenaError("P4001", f"{place}: {error}") from error
    expected = _VERSION if held.titles else _VERSION_WITHOUT_TITLES
    if held.version != expected:
        raise ArenaError("P4010", f"{place}: format {held.version} is not {expected}")
    try:
        batch = seal(
            held.race_id,
            held.problems,
            bytes.fromhex(held.salt),
            pools=held.pools,
            cluster_ids=held.cluster_ids,
            partition_sha256=held.partition_sha256,
            titles=_read(held.titles),
        )
    except ValueError as error:
        raise ArenaError("P4010", f"{place}: {error}") from error
    if not hmac.compare_digest(batch.batch_sha256, held.batch_sha256):
        raise ArenaError("P4010", f"{place}: {batch.batch_sha256[:12]}… is not {held.batch_sha256[:12]}…")
    if encode_batch(batch) != content:
        raise ArenaError("P4010", f"{place}: it was written again by another program")
    return batch


def _written(titles: AcceptedTitles | None) -> _Titles | None:
    if titles is None:
        return None
    accepted = {title: tuple(sorted(ids)) for title, ids in sorted(titles.accepted.items())}
    return _Titles(name=titles.name, accepted=accepted)


def _read(held: _Titles | None) -> AcceptedTitles | None:
    if held is None:
        return None
    return AcceptedTitles(name=held.name, accepted={title: frozenset(ids) for title, ids in held.accepted.items()})
