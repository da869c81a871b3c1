"""What an export says beside its log, held against the log: agents, sources, policies.

Promise: a name, why an open source is not here, and a policy that is left out are the exporter's word; everything else
follows from the rows. A source that is here has the hash its agent's records name, and its embargo had ended by the
time that the manifest states. Whatever is wrong raises ArenaError V2050.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from arena.export.model import Manifest, ShardFile
from arena.export.redaction import holds_secret
from arena.export.verify.row_check import LogRowCheck
from arena.export.writing.supplement import price_table, write_agents
from arena.policy import Policy
from foundation.errors import ArenaError

_POLICY = msgspec.json.Decoder(Policy)
_AGENT = msgspec.json.Decoder(AgentRow)
_KEPT: dict[str, Kept] = {"secret": "secret", "missing": "missing"}


class StatedSupplement:
    """What one export states beside its log; nothing for one of version 1."""

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
            policies = {path: _POLICY.decode((folder / path).read_bytes()) for path in paths}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
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
