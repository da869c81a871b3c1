"""The agents of an export: one row each beside the trajectories, and the files of those whose embargo has ended.

A row follows from the trajectories, the promotions that this export may show and the moment it was begun at, so
verification makes it again; a name, and why an open file is not here, are the exporter's word. A source is here byte
for byte, as its hash is in every record of its agent, or not at all: nothing can be removed from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from arena.export.assembly import Selection, log_row, signed_content
from arena.export.files import AGENTS, POLICIES, SOURCES, write_named
from arena.export.model import LogRange, Manifest, Request, ShardFile
from arena.policy import Policy
from arena.race.machine import force_of, replay, stream_of
from arena.race.schedule import opening_ms
from arena.race.settle import readable_policy
from arena.records.model import RecordContent, SettlementRecord, SignedRecord, Subject
from arena.secrets import holds_secret, scrub
from arena.visibility.rule import Moment, may_see
from foundation.canonical import read_canonical
from foundation.durable_files import coded
from foundation.errors import ArenaError

if TYPE_CHECKING:
    from arena.store.postgres import PostgresStore

LICENCE = "its author's: published by the rules of the race, which grant no licence"

SourceState = Literal[
    "here",  # in `file`
    "embargo",  # closed until `embargo_ends_ms`
    "not_promoted",  # no promotion that this export may show opens it
    "secret",  # open, and held back: it holds what looks like a credential
    "missing",  # open, and not kept by this validator, or promoted where no quorum settled alike
]


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
    """The promotion a settlement record tells of; None where there is none, or none that names its time by inputs and
    policy: it opens nothing."""
    policy = readable_policy(settlement) if settlement.state == "settled" and settlement.is_promotion else None
    if policy is None or settlement.inputs is None:
        return None
    try:
        opens_ms = opening_ms(settlement.inputs.closes_ms, policy)
    except (ValueError, OverflowError, OSError, KeyError):  # none that any calendar has
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


class Supplement(msgspec.Struct, kw_only=True):
    """What stands beside the log of one export."""

    names: dict[str, str] = {}  # by agent version id
    policies: dict[str, str] = {}  # canonical JSON by policy hash
    promotions: dict[str, Promotion] = {}  # by agent version id, of settlements that may be shown
    rows: dict[int, bytes] = {}  # lines of LogRow of promoting settlements that do not stand whole in the range
    sources: dict[str, bytes] = {}  # by agent version id, of those that are open
    kept: dict[str, SourceState] = {}  # open sources that are not here, and why, as an export states it


async def settlements_in(
    store: PostgresStore, validator: str
) -> AsyncIterator[tuple[SignedRecord, RecordContent, SettlementRecord, Policy]]:
    """The settlements of a log that state a policy and hold no credential."""
    async for record in store.records(validator, kinds=("settlement",)):
        content = signed_content(record.content, record.content_sha256)
        if content is None or not isinstance(content.payload, SettlementRecord) or holds_secret(record.content):
            continue
        if policy := readable_policy(content.payload):
            yield record, content, content.payload, policy


async def gather_supplement(store: PostgresStore, log: LogRange, request: Request, selection: Selection) -> Supplement:
    """Look up names, policies and promotions for an export about to be written. Raises ArenaError V2021."""
    found, policies, lines = list[Promotion](), dict[str, str](), dict[int, bytes]()
    async for record, content, settlement, policy in settlements_in(store, log.validator):
        if record.seq > log.last_seq:
            break
        assert settlement.inputs is not None  # `readable_policy` read them
        policies.setdefault(policy.policy_sha256, settlement.inputs.policy)
        promotion, is_large = promotion_of(record.seq, settlement), len(record.content) > request.row_bytes_max
        if promotion is None or not selection.is_released(promotion.race_id) or is_large:
            continue
        found.append(promotion)
        if record.seq < log.first_seq or selection.reason(record.seq, content):
            lines[record.seq] = msgspec.json.encode(log_row(record))
    names = {one.subject.agent_version_id: scrub(one.name) for one in await store.submissions()}
    in_force = {one.agent_version_id for one in found if not await _is_void(store, log, one.race_id)}
    return Supplement(
        names=names,
        policies=policies,
        promotions=first_promotions(found),
        rows=lines,
        kept={one.agent_version_id: "missing" for one in found if one.agent_version_id not in in_force},
    )


async def _is_void(store: PostgresStore, log: LogRange, race_id: str) -> bool:
    """Whether the log's settlement of a race is not in force, since no quorum settled alike: it opens no source."""
    if store.validator != log.validator:
        return False  # another's events are not here
    state = replay(race_id, await store.events(stream_of(race_id)))
    return force_of(state) == "none" or (state.is_adopted and state.settlement != state.proposed)


def stated_supplement(folder: Path, manifest: Manifest) -> Supplement:
    """What an export states of agents and policies: names, and why an open source is not here, are the exporter's word.
    Raises ArenaError V2050 for a file that can't be read, and a policy of another hash."""
    with coded(f"{AGENTS}, {POLICIES}/ or {SOURCES}/", "V2050"):
        rows = [msgspec.json.decode(line, type=AgentRow) for line in (folder / AGENTS).read_bytes().splitlines()]
        paths = [file.path for file in manifest.files if file.path.startswith(f"{POLICIES}/")]
        texts = {path: (folder / path).read_bytes() for path in paths}
        policies = {read_canonical(text, Policy).policy_sha256: text.decode() for text in texts.values()}
        named = {file.path for file in manifest.files}  # each is a plain file of the folder
        sources = {
            row.agent_version_id: (folder / row.file).read_bytes() for row in rows if row.file and row.file in named
        }
    if sorted(texts) != sorted(f"{POLICIES}/{name}.json" for name in policies):
        raise ArenaError("V2050", f"{POLICIES}/: a file is not the policy of its hash")
    kept: dict[str, SourceState] = {
        row.agent_version_id: "secret" if row.source == "secret" else "missing" for row in rows if row.file is None
    }
    names = {row.agent_version_id: row.name for row in rows if row.name is not None}
    return Supplement(names=names, policies=policies, sources=sources, kept=kept)


def write_agents(
    folder: Path,
    agents: Mapping[str, Subject],
    runs: Mapping[str, int],
    policies: Collection[str],
    supplement: Supplement,
    at_ms: int,
) -> tuple[list[ShardFile], tuple[AgentRow, ...]]:
    """Write agents, open sources and policies of an export that was begun at a moment (unix ms): the files, and a row
    for each agent version, by its id. `runs`: trajectories of each. Raises OSError."""
    files, rows = dict[str, ShardFile](), list[AgentRow]()
    for name in sorted(supplement.policies.keys() & set(policies)):
        path = f"{POLICIES}/{name}.json"
        files[path] = write_named(folder, path, supplement.policies[name].encode(), 0)
    for agent, subject in sorted(agents.items()):
        promotion, path = supplement.promotions.get(agent), f"{SOURCES}/{subject.agent_sha256}.py"
        opens_ms = promotion.opens_ms if promotion else None
        state: SourceState = "not_promoted" if opens_ms is None else "embargo"
        if is_source_open(promotion, at_ms):
            content = supplement.sources.get(agent, b"")
            if hashlib.sha256(content).hexdigest() != subject.agent_sha256:
                state = supplement.kept.get(agent, "missing")
            elif holds_secret(content):
                state = "secret"
            else:
                state, files[path] = "here", write_named(folder, path, content, 0)
        rows.append(
            AgentRow(
                agent_version_id=agent,
                name=supplement.names.get(agent),
                miner_hotkey=subject.miner_hotkey,
                source_sha256=subject.agent_sha256,
                commitment_block=subject.commitment_block,
                trajectories=runs[agent],
                promoted_race_id=promotion.race_id if promotion else None,
                settlement_seq=promotion.seq if promotion else None,
                embargo_ends_ms=opens_ms,
                embargo_ends=None if opens_ms is None else datetime.fromtimestamp(opens_ms / 1000, UTC).isoformat(),
                source=state,
                file=path if state == "here" else None,
                licence=LICENCE if state == "here" else None,
            )
        )
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    return [*files.values(), write_named(folder, AGENTS, lines, len(rows))], tuple(rows)
