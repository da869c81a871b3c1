"""An export made again from its own log rows: what the manifest and every view have to be.

It uses the code the exporter uses, reads nothing but `log/`, `scrubbed/` and the verdicts collected from them,
and holds each row against release rule and request on the way. A wrong row raises ArenaError V2050 with its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from arena.export.agents import (
    AGENTS,
    LAYOUT,
    POLICIES,
    AgentRow,
    Kept,
    agent_rows,
    first_promotions,
    policy_path,
    source_path,
)
from arena.export.facts import ViewContext
from arena.export.model import MANIFEST_VERSION, Manifest, ShardFile
from arena.export.reading import read_rows, read_scrubbed, row_trajectory
from arena.export.redaction import holds_secret
from arena.export.verify.row_check import LogRowCheck
from arena.export.writing.card import CARD
from arena.export.writing.diversity import DiversityFold
from arena.export.writing.exporter import PAGE, concluded, sorted_files, write_notes
from arena.export.writing.shards import LOG, REFERENCES, SCRUBBED, Outgoing, shard_is_full, shard_name
from arena.export.writing.sink import Sink
from arena.export.writing.supplement import price_table, write_agents
from arena.policy import Policy
from foundation.canonical import UNREADABLE_JSON, read_canonical
from foundation.errors import ArenaError

_CARDS = (CARD, f"views/datasets/{CARD}")  # of an earlier version their words are not ours: the hash alone is checked

_AGENT = msgspec.json.Decoder(AgentRow)
_KEPT: dict[str, Kept] = {"secret": "secret", "missing": "missing"}


class _StatedSupplement:
    """What one export states beside its log, held against the log: agents, sources, policies; nothing for one of
    version 1.

    A name, why an open source is not here, and a policy that is left out are the exporter's word; everything else
    follows from the rows. A source that is here has the hash its agent's records name, and its embargo had ended by the
    time that the manifest states. Whatever is wrong raises ArenaError V2050.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Reads agents and policies. Raises ArenaError V2050."""
        self._folder, self._manifest = folder, manifest
        self._named = {file.path: file for file in manifest.files}
        self._rows: dict[str, AgentRow] = {}
        self._policies: set[str] = set()
        self.context = ViewContext(version=manifest.version)
        if manifest.version == 1:
            return
        if AGENTS not in self._named:
            raise ArenaError("V2050", f"{AGENTS}: the file is missing")
        try:
            lines = (folder / AGENTS).read_bytes().splitlines()
            self._rows = {row.agent_version_id: row for row in map(_AGENT.decode, lines)}
            paths = [path for path in self._named if path.startswith(f"{POLICIES}/")]
            policies = {path: read_canonical((folder / path).read_bytes(), Policy) for path in paths}
        except UNREADABLE_JSON as error:
            raise ArenaError("V2050", f"{AGENTS} or {POLICIES}/: {error}") from error
        for path, policy in policies.items():
            if path != policy_path(policy.policy_sha256):
                raise ArenaError("V2050", f"{path}: it is not the policy of this hash")
        self._policies = {policy.policy_sha256 for policy in policies.values()}
        self.context = ViewContext(
            version=manifest.version,
            names={agent: row.name for agent, row in self._rows.items() if row.name is not None},
            prices={policy.policy_sha256: price_table(policy) for policy in policies.values()},
            has_argument_objects=manifest.request.arguments is not msgspec.UNSET,
        )

    def agents(self, check: LogRowCheck) -> tuple[AgentRow, ...]:
        """The rows the log comes to, all of which was gone over; notes which settlements they refer to."""
        exported_ms = self._manifest.exported_ms
        if exported_ms is msgspec.UNSET:
            return ()
        promotions = first_promotions(one for one in check.promotions if check.selection.is_released(one.race_id))
        check.use_promotions(promotions[agent] for agent in check.tally.agents if agent in promotions)
        kept = {agent: _KEPT[row.source] for agent, row in self._rows.items() if row.source in _KEPT}
        return agent_rows(check.tally.agents, promotions, self.context.names, kept, exported_ms)

    def files(self, made: Path, agents: Sequence[AgentRow]) -> list[ShardFile]:
        """The files beside the log as the manifest must name them; that of the agents is written under `made`."""
        if self._manifest.version == 1:
            return []
        sources = {row.source_sha256 for row in agents if row.source == "here"}
        for sha256 in sorted(sources):
            file = self._named.get(source_path(sha256))
            if file is None or file.sha256 != sha256:
                raise ArenaError("V2050", f"{source_path(sha256)}: the source is missing, or of another hash")
            if holds_secret((self._folder / file.path).read_bytes()):
                raise ArenaError("V2050", f"{file.path}: it holds what looks like a credential")
        needed = [*map(source_path, sources), *map(policy_path, self._policies & set(self._manifest.policies)), LAYOUT]
        found = [self._named[path] for path in needed if path in self._named]
        return [*(msgspec.structs.replace(file, rows=0) for file in found), write_agents(made, agents)]


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
        supplement = _StatedSupplement(self._folder, self._manifest)
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
