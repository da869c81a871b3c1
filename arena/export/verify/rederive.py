"""An export made again from its own log rows: what the manifest and every view have to be.

Promise: it uses the code the exporter uses, reads nothing but `log/`, `scrubbed/` and the verdicts collected from them,
and holds each row against release rule and request on the way. A wrong row raises ArenaError V2050 with its number.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from arena.export.model import MANIFEST_VERSION, Manifest, ShardFile
from arena.export.reading import read_rows, read_scrubbed, row_trajectory
from arena.export.redaction import holds_secret
from arena.export.verify.row_check import LogRowCheck
from arena.export.verify.supplement import StatedSupplement
from arena.export.writing.card import CARD
from arena.export.writing.diversity import DiversityFold
from arena.export.writing.exporter import PAGE, REFERENCES, concluded, sorted_files, write_notes
from arena.export.writing.ipc import Outgoing
from arena.export.writing.shards import LOG, SCRUBBED, shard_is_full, shard_name
from arena.export.writing.sinks import Sink
from foundation.errors import ArenaError

_CARDS = (CARD, f"views/datasets/{CARD}")  # of an earlier version their words are not ours: the hash alone is checked


class Rederivation:
    """One pass over the shards, into a folder of its own."""

    def __init__(self, folder: Path, made: Path, manifest: Manifest, check: LogRowCheck, sink: Sink) -> None:
        """`sink` writes the manifest's views under `made`."""
        self._folder, self._made, self._manifest, self._check = folder, made, manifest, check
        self._sink = sink
        self._fold = DiversityFold()
        self._named = {file.path: file for file in manifest.files}
        self._files: list[ShardFile] = []
        self._rows = 0

    def run(self, shards: int, progress: Callable[[int], None]) -> Manifest:
        """The manifest this export must have. Raises ArenaError V2050."""
        supplement = StatedSupplement(self._folder, self._manifest)
        self._sink.begin(supplement.context)
        for number in range(shards):
            self._shard(number, is_last=number == shards - 1)
            progress(self._rows)
        agents = supplement.agents(self._check)
        self._check.check_references()
        self._files += write_notes(self._made, self._manifest.log)
        if REFERENCES in self._named:
            self._add_named(REFERENCES, len(self._check.references))
        self._files += supplement.files(self._made, agents)
        base = msgspec.structs.replace(
            self._manifest,
            cursor=self._check.next_cursor(),
            diversity=self._fold.days(),
            files=sorted_files(self._files),
            **self._check.tally.stated(),
        )
        made = concluded(self._made, base, self._sink, agents)
        if made.version == MANIFEST_VERSION:
            return made
        files = tuple(self._named.get(file.path, file) if file.path in _CARDS else file for file in made.files)
        return msgspec.structs.replace(made, files=files)

    def _shard(self, number: int, *, is_last: bool) -> None:
        """Judge one shard's rows and write its views again."""
        scrubbed = read_scrubbed(self._folder, number)
        rows = trajectories = 0
        check, left, batch = self._check, dict(scrubbed), list[Outgoing]()
        for row in read_rows(self._folder / LOG / shard_name(number)):
            trajectory = left.pop(row.seq, None)
            if trajectory is not None:
                stated = (trajectory.validator, trajectory.content_sha256, trajectory.signature)
                if stated != (row.validator, row.content_sha256, row.signature):
                    raise ArenaError("V2050", f"record {row.seq}: its scrubbed trajectory is of another record")
                if row.withheld not in (None, "secret"):
                    raise ArenaError("V2050", f"record {row.seq}: withheld as {row.withheld}, and scrubbed")
                if holds_secret(msgspec.json.encode(trajectory)):
                    detail = "its scrubbed trajectory holds what looks like a credential"
                    raise ArenaError("V2050", f"record {row.seq}: {detail}")
                check.count(trajectory, is_scrubbed=True)
            elif (trajectory := row_trajectory(row, check.verdicts.find, check.selection.problem)) is not None:
                check.count(trajectory, is_scrubbed=False)
            check.judge(row, trajectory)
            if shard_is_full(trajectories, rows, self._manifest.request.rows_per_shard):
                raise ArenaError("V2050", f"record {row.seq}: it stands in a shard that is full")
            rows += 1
            if trajectory is None:
                continue
            trajectories += 1
            self._fold.add(trajectory)
            batch.append(Outgoing(b"", trajectory))
            if len(batch) == PAGE:
                self._sink.write(number, batch)
                batch = []
        if left:
            raise ArenaError("V2050", f"{SCRUBBED}/{shard_name(number)}: no row {min(left)} in its log shard")
        if batch:
            self._sink.write(number, batch)
        if not is_last and not shard_is_full(trajectories, rows, self._manifest.request.rows_per_shard):
            raise ArenaError("V2050", f"{LOG}/{shard_name(number)}: the shard ends too early")
        made = self._sink.finish()()
        self._files += made
        for file in made:  # its hash is known: a whole export need not fit where this one is made
            (self._made / file.path).unlink()
        self._rows += rows
        self._add_named(f"{LOG}/{shard_name(number)}", rows)
        if scrubbed:
            self._add_named(f"{SCRUBBED}/{shard_name(number)}", len(scrubbed))

    def _add_named(self, path: str, rows: int) -> None:
        """A file whose bytes were checked already: only its rows were counted again."""
        if path in self._named:
            self._files.append(msgspec.structs.replace(self._named[path], rows=rows))
