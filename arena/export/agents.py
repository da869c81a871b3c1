"""The agents of an export: one row each beside the trajectories, and the files of those whose embargo has ended.

Pure. A row follows from the trajectories, the promotions that this export may show and the moment it was begun
at, so verification makes it again; a name, and why an open file is not here, are the exporter's word. A source is here
byte for byte, as its hash is in every record of its agent, or not at all: nothing can be removed from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from arena.export.assembly import log_row, signed_content
from arena.export.files import AGENTS, LAYOUT, POLICIES, SOURCES, describe
from arena.export.journal import Journal
from arena.export.model import AgentTally, Manifest, ShardFile
from arena.export.row import ViewContext
from arena.export.selection import Selection
from arena.policy import Policy
from arena.race.settle import policy_of, source_opening_ms
from arena.records.model import SettlementRecord
from arena.records.port import Store
from arena.secrets import holds_secret, scrub
from arena.visibility.rule import Moment, may_see
from foundation.canonical import UNREADABLE_JSON, read_canonical
from foundation.durable_files import write_whole
from foundation.errors import ArenaError

LICENCE = "its author's: published by the rules of the race, which grant no licence"

SourceState = Literal[
    "here",  # in `file`
    "embargo",  # closed until `embargo_ends_ms`
    "not_promoted",  # no promotion that this export may show opens it
    "secret",  # open, and held back: it holds what looks like a credential
    "missing",  # open, and not kept by this validator
]
Kept = Literal["secret", "missing"]


class AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """One agent version of an export's trajectories: a line of `agents.jsonl`. What does not exist is None."""

    agent_version_id: str
    name: str | None  # under which it was submitted; None where this validator does not know it
    miner_hotkey: str
    source_sha256: str
    commitment_block: int
    trajectories: int  # of this agent in this export
    promoted_race_id: str | None  # the first settled race that made it the top agent
    settlement_seq: int | None  # the record that says so
    embargo_ends_ms: int | None
    embargo_ends: str | None  # the same, ISO 8601, UTC
    source: SourceState
    file: str | None
    licence: str | None  # of the file


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """A settlement record that made an agent the top one, and when its source opens (unix ms)."""

    seq: int
    race_id: str
    agent_version_id: str
    opens_ms: int


def promotion_of(seq: int, settlement: SettlementRecord) -> Promotion | None:
    """The promotion a settlement record tells of; None where there is none, or none that names its time."""
    try:
        opens_ms = source_opening_ms(settlement)
    except (ArenaError, ValueError, OverflowError, OSError, KeyError):
        return None  # it states no time, or none that any calendar has: it opens nothing
    if opens_ms is None:
        return None
    agent = settlement.top_agent_version_id
    return Promotion(seq=seq, race_id=settlement.race_id, agent_version_id=agent, opens_ms=opens_ms)


def first_promotions(promotions: Iterable[Promotion]) -> dict[str, Promotion]:
    """By agent version, the earliest: a source that was open once is not closed again."""
    first: dict[str, Promotion] = {}
    for one in sorted(promotions, key=lambda promotion: promotion.seq):
        first.setdefault(one.agent_version_id, one)
    return first


def is_source_open(promotion: Promotion | None, at_ms: int) -> bool:
    """Whether anybody may see the source of the agent that a settlement promoted, if one did, at a moment (unix ms)."""
    if promotion is None:
        return False
    moment: Moment = "published" if at_ms >= promotion.opens_ms else "settled"
    return may_see("public", "source", moment, is_winner=True).is_seen


def agent_rows(
    tallies: Mapping[str, AgentTally],
    promotions: Mapping[str, Promotion],
    names: Mapping[str, str],
    kept: Mapping[str, Kept],
    at_ms: int,
) -> tuple[AgentRow, ...]:
    """A row for each agent version, by its id. `kept`: the open sources that are not here, and why."""
    rows = []
    for agent, tally in sorted(tallies.items()):
        subject, promotion = tally.subject, promotions.get(agent)
        opens_ms = promotion.opens_ms if promotion else None
        state: SourceState = "not_promoted" if opens_ms is None else "embargo"
        if is_source_open(promotion, at_ms):
            state = kept.get(agent, "here")
        rows.append(
            AgentRow(
                agent_version_id=agent,
                name=names.get(agent),
                miner_hotkey=subject.miner_hotkey,
                source_sha256=subject.agent_sha256,
                commitment_block=subject.commitment_block,
                trajectories=tally.trajectories,
                promoted_race_id=promotion.race_id if promotion else None,
                settlement_seq=promotion.seq if promotion else None,
                embargo_ends_ms=opens_ms,
                embargo_ends=None if opens_ms is None else datetime.fromtimestamp(opens_ms / 1000, UTC).isoformat(),
                source=state,
                file=source_path(subject.agent_sha256) if state == "here" else None,
                licence=LICENCE if state == "here" else None,
            )
        )
    return tuple(rows)


def source_path(source_sha256: str) -> str:
    """Where a source stands in the export."""
    return f"{SOURCES}/{source_sha256}.py"


def policy_path(policy_sha256: str) -> str:
    """Where a policy stands in the export."""
    return f"{POLICIES}/{policy_sha256}.json"


_AGENT = msgspec.json.Decoder(AgentRow)


class Supplement(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside the log of one export."""

    names: dict[str, str] = {}  # by agent version id
    policies: dict[str, str] = {}  # canonical JSON by policy hash
    promotions: dict[str, Promotion] = {}  # by agent version id, of settlements that may be shown
    rows: dict[int, bytes] = {}  # lines of LogRow of promoting settlements that do not stand whole in the range

    def context(self) -> ViewContext:
        """What views show of it."""
        policies = {name: msgspec.json.decode(text, type=Policy) for name, text in self.policies.items()}
        return ViewContext(names=self.names, policies=policies)


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
        self.context = ViewContext(
            names={agent: row.name for agent, row in self._rows.items() if row.name is not None},
            policies={policy.policy_sha256: policy for policy in policies.values()},
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
        needed = [
            *map(source_path, sources),
            *map(policy_path, self.context.policies.keys() & set(self._manifest.policies)),
            LAYOUT,
        ]
        found = [self._named[path] for path in needed if path in self._named]
        return [*(msgspec.structs.replace(file, rows=0) for file in found), write_agents(made, agents)]


def write_agents(folder: Path, rows: Sequence[AgentRow]) -> ShardFile:
    """Write the agents' rows, one a line."""
    return _written(folder, AGENTS, b"".join(msgspec.json.encode(row) + b"\n" for row in rows), len(rows))


def _written(folder: Path, name: str, content: bytes, rows: int) -> ShardFile:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    write_whole(path, content)
    return describe(folder, path, rows)
