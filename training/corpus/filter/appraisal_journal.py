"""Appraisals on disk, shard after shard: memory holds a dozen bytes a trace, and a killed run goes on where it was.

`traces` are read from the file each time they are asked for. A journal with a path is taken up again by a run
of the same identity, up to the last shard that was written whole (each has its checksum); a run of another identity
begins it anew. One run at a time has it. A journal without a path goes with the process.

```
identity, 64 hex digits, line feed
a shard:  bytes and crc32 of the rest;  bytes of the head, head (MessagePack);  its appraisals, one after another
```
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
import weakref
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

import msgspec

from foundation.errors import ArenaError
from training.corpus.filter.funnel import TokenWork, UnreadCount
from training.corpus.filter.trace_features import Appraisal, ShardAppraisals

NO_IDENTITY = "0" * 64

_SHARD, _HEAD = struct.Struct("<QI"), struct.Struct("<I")
_PACK = msgspec.msgpack.Encoder().encode
_TRACE = msgspec.msgpack.Decoder(Appraisal).decode


class ShardHead(msgspec.Struct, frozen=True, array_like=True):
    """A shard beside its appraisals. `sizes` are their bytes, in order; the rest as in `ShardAppraisals`."""

    sizes: list[int]
    quarantined: tuple[UnreadCount, ...]
    counts: dict[str, int]
    work: TokenWork


_HEADS = msgspec.msgpack.Decoder(ShardHead)


def pack_shard(shard: ShardAppraisals) -> bytes:
    """A shard as the journal holds it; made where the shard was read."""
    rows = [_PACK(one) for one in shard.traces]
    head = _PACK(ShardHead([len(row) for row in rows], shard.quarantined, shard.counts, shard.work))
    return b"".join((_HEAD.pack(len(head)), head, *rows))


class StoredAppraisals(Sequence[Appraisal]):
    """Appraisals that lie in a file."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._starts, self._sizes = array("Q"), array("I")

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Appraisal: ...
    @overload
    def __getitem__(self, index: slice) -> list[Appraisal]: ...
    def __getitem__(self, index: int | slice) -> Appraisal | list[Appraisal]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        return _TRACE(os.pread(self._file, self._sizes[index], self._starts[index]))

    def __iter__(self) -> Iterator[Appraisal]:
        return map(self.__getitem__, range(len(self)))

    def extend(self, start: int, sizes: Sequence[int]) -> None:
        """Appraisals of these sizes stand from `start` on, one after another."""
        for size in sizes:
            self._starts.append(start)
            self._sizes.append(size)
            start += size


class AppraisalJournal:
    """One run's appraisals. Raises ArenaError V2027 when the file cannot be used, or another run is using it."""

    def __init__(self, path: Path | None = None, identity: str = NO_IDENTITY) -> None:
        self._path = path
        try:
            if path is None:
                with tempfile.TemporaryFile() as file:
                    self._file = os.dup(file.fileno())
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            self.traces = StoredAppraisals(self._file)
            weakref.finalize(self.traces, os.close, self._file)  # they may be read after the journal is gone
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArenaError("V2027", f"{path}: another build is using it") from None
        except OSError as wrong:
            raise ArenaError("V2027", f"{path}: {wrong.strerror}") from None
        self._heads: list[int] = []  # where each shard's head stands
        self._end = len(identity) + 1
        head = identity.encode() + b"\n"
        if os.pread(self._file, len(head), 0) != head:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, head, 0)
        while len(begin := os.pread(self._file, _SHARD.size, self._end)) == _SHARD.size:
            size, checksum = _SHARD.unpack(begin)
            packed = os.pread(self._file, size, self._end + _SHARD.size)
            if len(packed) != size or zlib.crc32(packed) != checksum:
                break  # a kill cut it short, or the disk changed it: read again
            self._index(packed)
        os.ftruncate(self._file, self._end)

    @property
    def folder(self) -> Path | None:
        """The folder it lies in: the place for what else a build puts on disk. None for one without a path."""
        return self._path and self._path.parent

    @property
    def shards(self) -> int:
        """How many shards it holds."""
        return len(self._heads)

    def add(self, packed: bytes) -> None:
        """Put the next shard down. Raises ArenaError V2027 when the disk does not take it."""
        try:
            with open(self._file, "wb", closefd=False) as file:
                file.seek(self._end)
                file.write(_SHARD.pack(len(packed), zlib.crc32(packed)))
                file.write(packed)
        except OSError as wrong:
            raise ArenaError("V2027", f"{self._path or tempfile.gettempdir()}: {wrong.strerror}") from None
        self._index(packed)

    def heads(self) -> Iterator[ShardHead]:
        """What each shard says beside its appraisals."""
        for start in self._heads:
            (size,) = _HEAD.unpack(os.pread(self._file, _HEAD.size, start))
            yield _HEADS.decode(os.pread(self._file, size, start + _HEAD.size))

    def discard(self) -> None:
        """Take the file away: what it was for is done. The appraisals can still be read by whoever has them."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _index(self, packed: bytes) -> None:
        start = self._end + _SHARD.size
        (size,) = _HEAD.unpack_from(packed)
        self._heads.append(start)
        self.traces.extend(start + _HEAD.size + size, _HEADS.decode(packed[_HEAD.size : _HEAD.size + size]).sizes)
        self._end = start + len(packed)
