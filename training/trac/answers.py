"""Answers that were paid for, each kept under the hash of the whole question: a killed run asks nothing twice.

The key is the content hash of everything that decides an answer (model, messages, decoding, draw), so another
prompt or model is another question. A file appears whole or not at all; one that can't be read is asked again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from foundation.canonical import content_hash
from foundation.durable_files import write_whole
from foundation.errors import ArenaError

_Value = TypeVar("_Value")


class Answers:
    """A folder of answers. Threads may read and write different questions at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, question: object, kind: type[_Value]) -> _Value | None:
        """What was answered, None for nothing."""
        try:
            return msgspec.json.decode(self._path(question).read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError):
            return None

    def keep(self, question: object, answer: object) -> None:
        """Keep an answer. Raises ArenaError V2027."""
        path = self._path(question)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, msgspec.json.encode(answer))
        except OSError as wrong:
            raise ArenaError("V2027", f"{path}: {wrong.strerror}") from None

    def _path(self, question: object) -> Path:
        key = content_hash(question)
        return self._folder / key[:2] / f"{key}.json"
