"""OpenAI chat messages: one JSON object a line, `{messages, tools, metadata}`, in `<shard>.jsonl.zst`.

The shape fine-tuning reads: arguments are text (objects where the export was asked for them), turns the model
did not write have `weight` 0. `metadata` holds the facts of FORMATS.md that the log itself says, so one `jq` filter on
`is_agentic`, `is_linear` and `is_model_written` leaves clean rows only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from arena.export.facts import TrajectoryFacts, ViewContext
from arena.export.formats.nested import object_of
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

    def __init__(self, folder: Path, shard_number: int, context: ViewContext) -> None:
        self._folder, self._has_objects = folder, context.has_argument_objects
        self._lines = LinesFile(folder / f"{shard_number:06d}.jsonl.zst")

    def write(self, rows: Sequence[Trajectory]) -> None:
        """Add trajectories."""
        for trajectory in rows:
            row = row_of(trajectory)
            line = ChatRow(
                messages=row.conversation.messages, tools=msgspec.Raw(row.tools.encode()), metadata=row.facts
            )
            # One at a time: what is compressed may not depend on how rows were handed over.
            self._lines.write([_ENCODER.encode(_with_objects(line) if self._has_objects else line)])

    def finish(self) -> tuple[ShardFile, ...]:
        """Complete the file."""
        self._lines.close()
        return (describe(self._folder, self._lines.path, self._lines.rows),)


def _with_objects(line: ChatRow) -> dict[str, Any]:
    """The line with each call's arguments as an object."""
    messages = msgspec.to_builtins(line.messages)
    for message in messages:
        for key in ("tool_calls", "echoed_tool_calls", "agent_tool_calls"):
            for call in message.get(key, ()):
                call["function"]["arguments"] = object_of(call["function"]["arguments"])
    return {"messages": messages, "tools": line.tools, "metadata": line.metadata}


def open_writer(folder: Path, shard_number: int, context: ViewContext) -> MessagesWriter:
    """A writer of one shard."""
    return MessagesWriter(folder, shard_number, context)


def finish_export(folder: Path, manifest: Manifest) -> tuple[ShardFile, ...]:
    """Nothing: the files speak for themselves."""
    return ()
