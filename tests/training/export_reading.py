"""An export's trajectories in one process."""

from __future__ import annotations

from collections.abc import Iterator

from training.corpus.exports import Export, export_shards
from training.corpus.model import Quarantined, Trace


def read_traces(export: Export) -> Iterator[Trace | Quarantined]:
    """The trajectories of an export, shard after shard."""
    for shard in export_shards(export):
        yield from shard()
