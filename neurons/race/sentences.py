"""What happens in a race and to a submission, as sentences for readers of the validator's log.

Pure text from values. A name stands beside each hash; times are UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from foundation.errors import counted

if TYPE_CHECKING:
    from arena.race.machine import Event
    from arena.records.model import SettlementRecord
    from arena.records.port import StoredSubmission, WeightsResult

_RANKS_SHOWN = 3
_BEGIN, _END = 4, 3  # characters of an id
BURN_UID = 0


def short(identity: str) -> str:
    """A hash or hotkey that is short enough to stand beside a name: `5FBh…75w`."""
    return identity if len(identity) <= _BEGIN + _END + 1 else f"{identity[:_BEGIN]}…{identity[-_END:]}"


def names_of(submissions: Iterable[StoredSubmission]) -> dict[str, str]:
    """By agent version: the name its miner gave it and the hotkey, `expert 5FBh…75w`."""
    return {
        each.subject.agent_version_id: f"{each.name} {short(each.subject.miner_hotkey)}".strip() for each in submissions
    }


def race_sentence(race_id: str, event: Event, names: Mapping[str, str]) -> str:
    """What this event means to people; "" for one that only the machinery needs."""
    from arena.race import machine

    match event:
        case machine.RaceOpened():
            closes = datetime.fromtimestamp(event.closes_ms / 1_000, UTC)
            return f"{race_id} is open: submissions close {closes:%d %b %H:%M:%S} UTC"
        case machine.RaceClosed():
            return f"{race_id} takes no more submissions; the field is fixed once the gate and qualifying are done"
        case machine.FieldFixed(field=field):
            racing = ", ".join(_named(each.subject.agent_version_id, names) for each in field)
            verb = "agent races" if len(field) == 1 else "agents race"
            return f"{race_id}: {len(field)} {verb}: {racing}" if field else f"{race_id}: no agent qualified"
        case machine.ProblemsDrawn():
            return f"{race_id}: {counted(len(event.drawn), 'problem')} drawn"
        case machine.ItemsEnqueued():
            return f"{race_id}: {counted(event.items, 'run')} of an agent on a problem begin"
        case machine.SettlementDue():
            return f"{race_id}: nothing more is waited for, it is settled now"
        case machine.RaceSettled(settlement=settlement):
            return settlement_sentence(settlement, names)
        case machine.BatchReleased():
            return f"{race_id}: its problems and traces are released"
        case _:
            return ""


def settlement_sentence(settlement: SettlementRecord, names: Mapping[str, str]) -> str:
    """Who finished where, and who is at the top and so is paid."""
    if settlement.state == "cancelled":
        return f"{settlement.race_id} is cancelled: {settlement.reason or 'nobody raced'}"
    ranked = settlement.standings[:_RANKS_SHOWN]
    places = ", ".join(
        f"{row.rank}. {_named(row.agent_version_id, names)} {row.race_score_e4 / 10_000:.3f}" for row in ranked
    )
    return f"{settlement.race_id} is settled: {places or 'no standings'}; {top_sentence(settlement, names)}"


def top_sentence(settlement: SettlementRecord, names: Mapping[str, str]) -> str:
    """Who is at the top after the race, and why that may be another than the first of its ranking."""
    top = settlement.top_agent_version_id
    if not top:
        return "nobody is at the top yet, so the top share is burned"
    named = _named(top, names)
    if settlement.is_promotion:
        return f"{named} is promoted to the top"
    first = settlement.standings[0].agent_version_id if settlement.standings else top
    if first != top:
        return (
            f"{named} stays at the top: {_named(first, names)} did not beat it by what the policy's promotion rule asks"
        )
    return f"{named} stays at the top"


def weights_sentence(result: WeightsResult, hotkeys: Mapping[int, str], names: Mapping[str, str]) -> str:
    """How a try to set weights ended. `hotkeys` by uid; `names` by hotkey."""
    if result.status == "rate_limited":
        return f"Weights of {result.race_id} wait for the chain's rate limit; retried by itself. ({result.detail})"
    if result.status != "ok":
        return f"Weights of {result.race_id} are refused ({result.status.replace('_', ' ')}): {result.detail}"
    total = sum(result.weights_u16) or 1
    shares = sorted(zip(result.weights_u16, result.uids, strict=True), reverse=True)
    payees = {uid: f"{names.get(hotkey, f'uid {uid}')} {short(hotkey)}" for uid, hotkey in hotkeys.items()}
    payees[BURN_UID] = "burn"
    paid = ", ".join(f"{payees.get(uid, f'uid {uid}')} {weight / total:.1%}" for weight, uid in shares if weight)
    return f"Weights of {result.race_id} are set in block {result.block}: {paid}"


def _named(agent_version_id: str, names: Mapping[str, str]) -> str:
    return names.get(agent_version_id, short(agent_version_id))
