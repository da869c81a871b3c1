"""What an export holds beside its log: agents' names and open sources, and the policies that its trajectories name.

Names and policies are looked up before the first row and sources after the last, so memory is bounded by the
promotions of a log and one source. A settlement that may not be shown yet, or that holds what looks like a credential,
says nothing here. What is written is named in the manifest and held against the log when the export is verified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import msgspec

from arena.export.agents import (
    AGENTS,
    LAYOUT,
    POLICIES,
    AgentRow,
    AgentTally,
    Kept,
    Promotion,
    agent_rows,
    first_promotions,
    is_source_open,
    policy_path,
    promotion_of,
    source_path,
)
from arena.export.model import Manifest, ShardFile
from arena.export.redaction import holds_secret, scrub
from arena.export.row import PriceTable, ViewContext
from arena.export.selection import Selection
from arena.export.writing.assembly import log_row, signed_content
from arena.export.writing.journal import Journal
from arena.export.writing.shards import describe
from arena.policy import Policy
from arena.race.settle import policy_of
from arena.records.model import SettlementRecord
from arena.store.port import Store
from foundation.canonical import UNREADABLE_JSON, read_canonical
from foundation.durable_files import write_whole
from foundation.errors import ArenaError

_AGENT = msgspec.json.Decoder(AgentRow)


class Supplement(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside the log of one export."""

    names: dict[str, str] = {}  # by agent version id
    policies: dict[str, str] = {}  # canonical JSON by policy hash
    promotions: dict[str, Promotion] = {}  # by agent version id, of settlements that may be shown
    rows: dict[int, bytes] = {}  # lines of LogRow of promoting settlements that do not stand whole in the range

    def context(self) -> ViewContext:
        """What views show of it."""
        prices = {name: price_table(msgspec.json.decode(text, type=Policy)) for name, text in self.policies.items()}
        return ViewContext(names=self.names, prices=prices)


async def gather_supplement(store: Store, journal: Journal, selection: Selection) -> Supplement:
    """Look up names and policies for an export about to be written. Raises ArenaError V2021."""
    log, row_bytes_max = journal.log, journal.request.row_bytes_max
    found, policies, lines = list[Promotion](), dict[str, str](), dict[int, bytes]()
    async for record in store.records(log.validator, kinds=("settlement",)):
        if record.seq > log.last_seq:
            break
        content = signed_content(record.content, record.content_sha256)
        settlement = content.payload if content else None
        if content is None or not isinstance(settlement, SettlementRecord) or holds_secret(record.content):
            continue
        try:
            policy = policy_of(settlement)
        except ArenaError:  # V2102: it states no policy
            continue
        assert settlement.inputs is not None  # `policy_of` read them
        policies.setdefault(policy.policy_sha256, settlement.inputs.policy)
        promotion = promotion_of(record.seq, settlement)
        if promotion is None or not selection.is_released(promotion.race_id) or len(record.content) > row_bytes_max:
            continue
        found.append(promotion)
        if record.seq < log.first_seq or selection.reason(record.seq, content):
            lines[record.seq] = msgspec.json.encode(log_row(record, content=record.content))
    promotions = first_promotions(found)
    counted = {promotion.seq for promotion in promotions.values()}
    names = {one.subject.agent_version_id: one.name for one in await store.submissions()}
    return Supplement(
        names={agent: scrub(name) for agent, name in names.items()},
        policies=policies,
        promotions=promotions,
        rows={seq: line for seq, line in lines.items() if seq in counted},
    )


def refer_to_promotions(journal: Journal, supplement: Supplement) -> frozenset[str]:
    """Let the references hold the promoting settlements of the export's agents: the races whose releases they need."""
    promoted = [supplement.promotions[agent] for agent in journal.tally.agents if agent in supplement.promotions]
    outside = [one for one in promoted if one.seq in supplement.rows]
    for one in outside:
        journal.tally.references[str(one.seq)] = supplement.rows[one.seq].decode()
    return frozenset(one.race_id for one in outside)


async def write_supplement(
    store: Store, folder: Path, journal: Journal, supplement: Supplement
) -> tuple[list[ShardFile], tuple[AgentRow, ...]]:
    """Write agents, open sources, policies and FORMATS.md. Raises ArenaError V2021, OSError."""
    files, kept = dict[str, ShardFile](), dict[str, Kept]()
    for agent, tally in sorted(journal.tally.agents.items()):
        promotion = supplement.promotions.get(agent)
        if not is_source_open(promotion, journal.exported_ms):
            continue
        content = (await store.source(agent) or "").encode()
        if hashlib.sha256(content).hexdigest() != tally.subject.agent_sha256:
            kept[agent] = "missing"
        elif holds_secret(content):
            kept[agent] = "secret"
        else:
            path = source_path(tally.subject.agent_sha256)
            files[path] = _written(folder, path, content, 0)
    for name in sorted(journal.tally.policies & supplement.policies.keys()):
        files[policy_path(name)] = _written(folder, policy_path(name), supplement.policies[name].encode(), 0)
    rows = agent_rows(journal.tally.agents, supplement.promotions, supplement.names, kept, journal.exported_ms)
    layout = resources.files("arena.export").joinpath(LAYOUT).read_bytes()
    return [*files.values(), write_agents(folder, rows), _written(folder, LAYOUT, layout, 0)], rows


class StatedSupplement:
    """What one export states beside its log, held against the log: agents, sources, policies.

    A name, why an open source is not here, and a policy that is left out are the exporter's word; everything else
    follows from the rows. A source that is here has the hash its agent's records name, and its embargo had ended by the
    time that the manifest states. Whatever is wrong raises ArenaError V2050.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Reads agents and policies. Raises ArenaError V2050."""
        self._folder, self._manifest = folder, manifest
        self._named = {file.path: file for file in manifest.files}
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
            names={agent: row.name for agent, row in self._rows.items() if row.name is not None},
            prices={policy.policy_sha256: price_table(policy) for policy in policies.values()},
        )

    def agents(self, tallies: Mapping[str, AgentTally], promotions: Mapping[str, Promotion]) -> tuple[AgentRow, ...]:
        """The rows that the whole log comes to."""
        kept: dict[str, Kept] = {
            agent: "secret" if row.source == "secret" else "missing"
            for agent, row in self._rows.items()
            if row.source in ("secret", "missing")
        }
        return agent_rows(tallies, promotions, self.context.names, kept, self._manifest.exported_ms)

    def files(self, made: Path, agents: Sequence[AgentRow]) -> list[ShardFile]:
        """The files beside the log as the manifest must name them; that of the agents is written under `made`."""
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


def write_agents(folder: Path, rows: Sequence[AgentRow]) -> ShardFile:
    """Write the agents' rows, one a line."""
    return _written(folder, AGENTS, b"".join(msgspec.json.encode(row) + b"\n" for row in rows), len(rows))


def price_table(policy: Policy) -> PriceTable:
    """What a policy says of prices."""
    return PriceTable(policy.inference.models, policy.limits)


def _written(folder: Path, name: str, content: bytes, rows: int) -> ShardFile:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    write_whole(path, content)
    return describe(folder, path, rows)
