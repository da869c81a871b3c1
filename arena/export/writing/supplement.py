"""What an export holds beside its log: agents' names and open sources, and the policies that its trajectories name.

Names and policies are looked up before the first row and sources after the last, so memory is bounded by the
promotions of a log and one source. A settlement that may not be shown yet, or that holds what looks like a credential,
says nothing here. What is written is named in the manifest and held against the log when the export is verified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import msgspec

from arena.export.agents import (
    AGENTS,
    LAYOUT,
    AgentRow,
    Kept,
    Promotion,
    agent_rows,
    first_promotions,
    is_source_open,
    policy_path,
    promotion_of,
    source_path,
)
from arena.export.facts import PriceTable, ViewContext
from arena.export.model import Request, ShardFile
from arena.export.redaction import holds_secret, scrub
from arena.export.selection import Selection
from arena.export.writing.assembly import log_row, signed_content
from arena.export.writing.journal import Journal
from arena.export.writing.shards import describe
from arena.policy import Policy
from arena.race.settlement.provenance import policy_of
from arena.records.model import SettlementRecord
from arena.store.port import Store
from foundation.durable_files import write_whole
from foundation.errors import ArenaError


class Supplement(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside the log of one export."""

    names: dict[str, str] = {}  # by agent version id
    policies: dict[str, str] = {}  # canonical JSON by policy hash
    promotions: dict[str, Promotion] = {}  # by agent version id, of settlements that may be shown
    rows: dict[int, bytes] = {}  # lines of LogRow of promoting settlements that do not stand whole in the range

    def context(self, version: int, request: Request) -> ViewContext:
        """What views show of it."""
        prices = {name: price_table(msgspec.json.decode(text, type=Policy)) for name, text in self.policies.items()}
        return ViewContext(
            version=version,
            names=self.names,
            prices=prices,
            has_argument_objects=request.arguments is not msgspec.UNSET,
        )


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
