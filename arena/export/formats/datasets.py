"""A folder that Hugging Face `datasets` opens offline: Parquet by pool, and a dataset card.

`data/<pool>-<shard>.parquet` has the columns of the Parquet view, each pool is a split of that name, and
`README.md` is a function of the manifest: splits, policies, what was withheld and why, diversity, how to verify.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from arena.export.facts import ViewContext
from arena.export.formats.parquet import ParquetFile
from arena.export.model import Manifest, ShardFile, Trajectory
from arena.export.row import row_of
from arena.export.writing.card import CARD, Home, render_card
from arena.export.writing.shards import describe
from problems.model import POOLS, Pool

DATA = "data"


class DatasetsWriter:
    """A `ViewWriter` of one Parquet file for each pool of a shard."""

    def __init__(self, folder: Path, shard_number: int, context: ViewContext) -> None:
        self._folder, self._number, self._context = folder, shard_number, context
        self._files: dict[Pool, ParquetFile] = {}
        (folder / DATA).mkdir(exist_ok=True)
        for pool in POOLS:
            self._path(pool).unlink(missing_ok=True)  # of an interrupted try

    def write(self, rows: Sequence[Trajectory]) -> None:
        """Add trajectories, each to its pool's file."""
        for trajectory in rows:
            if trajectory.pool not in self._files:
                self._files[trajectory.pool] = ParquetFile(self._path(trajectory.pool), self._context)
            self._files[trajectory.pool].add(row_of(trajectory, self._context))

    def finish(self) -> tuple[ShardFile, ...]:
        """Complete the files, in the order of the pools."""
        files = []
        for pool in POOLS:
            if pool in self._files:
                file = self._files[pool]
                file.close()
                files.append(describe(self._folder, file.path, file.rows))
        return tuple(files)

    def _path(self, pool: Pool) -> Path:
        return self._folder / DATA / f"{pool}-{self._number:06d}.parquet"


def open_writer(folder: Path, shard_number: int, context: ViewContext) -> DatasetsWriter:
    """A writer of one shard."""
    return DatasetsWriter(folder, shard_number, context)


def finish_export(folder: Path, manifest: Manifest) -> tuple[ShardFile, ...]:
    """Write the dataset card."""
    card = folder / CARD
    card.write_text(render_card(manifest, Home.of_view(manifest)), "utf-8")
    return (describe(folder, card, 0),)
