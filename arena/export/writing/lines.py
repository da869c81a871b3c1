"""Lines into one zstd-compressed file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import zstandard

ZSTD_LEVEL = 1


class LinesFile:
    """A file of lines being written."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.rows = path, 0
        self._file = path.open("wb")
        compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
        self._stream = compressor.stream_writer(self._file, closefd=False)

    def write(self, lines: Sequence[bytes]) -> None:
        """Add lines, given without their ends."""
        if lines:
            self._stream.write(b"\n".join((*lines, b"")))
            self.rows += len(lines)

    def close(self) -> None:
        """Complete the file."""
        self._stream.flush(zstandard.FLUSH_FRAME)
        self._file.close()

    def __enter__(self) -> LinesFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
