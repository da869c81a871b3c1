"""OpenAI chat messages: one JSON object a line, `{messages, tools, metadata}`, in `<shard>.jsonl.zst`.

Promise: the shape fine-tuning reads: arguments are text, turns the model did not write have `weight` 0. `metadata`
holds the facts of FORMATS.md that the log itself says, so one `jq` filter on `is_agentic`, `is_linear` and
`is_model_written` leaves clean rows only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from arena.export.facts import TrajectoryFacts, ViewContext
from arena.export.model import Manifest, ShardFile, Trajectory
from arena.export.row import row_of
from arena.export.writing.shards import LinesFile, describe
from harness.chat import ChatMessage

_ENCODER = msgspec.json.Encoder()


class ChatRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line."""

    messages: tuple[ChatMessage, ...]
    tools: msgspec.Raw
    metadata: TrajectoryFacts


class MessagesWriter:
    """A `ViewWriter` of one file of lines a shard."""

    def __init__(self, folder: Path, shard_number: int) -> None:
        self._folder = folder
        self._lines = LinesFile(folder / f"{shard_number:06d}.jsonl.zst")

    def write(self, rows: Sequence[Trajectory]) -> None:
        """Add trajectories."""
        for trajectory in rows:
            row = row_of(trajectory)
            line = ChatRow(
                messages=row.conversation.messages, tools=msgspec.Raw(row.tools.encode()), metadata=row.facts
            )
            # One at a time: what is compressed may not depend on how rows were handed over.
            self._lines.write([_ENCODER.encode(line)])

    def finish(self) -> tuple[ShardFile, ...]:
        """Complete the file."""
        self._lines.close()
        return (describe(self._folder, self._lines.path, self._lines.rows),)


def open_writer(folder: Path, shard_number: int, context: ViewContext) -> MessagesWriter:
    """A writer of one shard."""
    return MessagesWriter(folder, shard_number)


def finish_export(folder: Path, manifest: Manifest) -> tuple[ShardFile, ...]:
    """Nothing: the files speak for themselves."""
    return ()
