"""Batch files: a sealed batch on disk, readable by its owner only, checked whenever it is read.

Promise: a write either replaces the file whole or leaves the old one; a file that was edited is refused (P4010). The
hash inside finds accidents; whether this is the batch a race committed to is told by comparing with the chain.
"""

from __future__ import annotations

import hmac
import os
from pathlib import Path

import msgspec

from arena.bank.batch import SealedBatch, seal
from problems.errors import ArenaError
from problems.model import Pool, Problem

_VERSION = 1


class _BatchFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file's shape."""

    version: int
    race_id: str
    salt: str
    batch_sha256: str
    problems: tuple[Problem, ...]
    pools: tuple[Pool, ...] = ()
    partition_sha256: str = ""


def write_batch(path: Path, batch: SealedBatch) -> None:
    """Write the batch with mode 0600, through a file beside it. Raises OSError when the folder can't be written."""
    content = msgspec.json.encode(
        _BatchFile(
            version=_VERSION,
            race_id=batch.race_id,
            salt=batch.salt,
            batch_sha256=batch.batch_sha256,
            problems=batch.problems,
            pools=batch.pools,
            partition_sha256=batch.partition_sha256,
        )
    )
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_batch(path: Path) -> SealedBatch:
    """The batch in a file.

    Raises ArenaError P4001 when the file can't be read as JSON, P4010 when it has another shape or does not match its
    own hash, and what `seal` raises for its problems.
    """
    try:
        held = msgspec.json.decode(path.read_bytes(), type=_BatchFile)
    except OSError as error:
        raise ArenaError("P4001", f"{path}: {error.strerror or error}") from error
    except msgspec.ValidationError as error:
        raise ArenaError("P4010", f"{path}: {error}") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ArenaError("P4001", f"{path}: {error}") from error
    if held.version != _VERSION:
        raise ArenaError("P4010", f"{path}: format {held.version} is not {_VERSION}")
    try:
        batch = seal(
            held.race_id,
            held.problems,
            bytes.fromhex(held.salt),
            pools=held.pools,
            partition_sha256=held.partition_sha256,
        )
    except ValueError as error:
        raise ArenaError("P4010", f"{path}: {error}") from error
    if not hmac.compare_digest(batch.batch_sha256, held.batch_sha256):
        raise ArenaError("P4010", f"{path}: {batch.batch_sha256[:12]}… is not {held.batch_sha256[:12]}…")
    return batch
