"""How a race went: its stages, who qualified, who evaluated it, and why problems count for nobody. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from arena.api.reads.answers import ListedAgent, RaceRow
from arena.api.reads.board import RaceView
from arena.race.settlement.provenance import policy_of
from arena.race.settlement.scores import results_needed
from arena.records.model import SettlementRecord
from arena.web.model import Qualified, RaceStep
from arena.web.reading import LEADERS, name_of
from foundation.errors import ArenaError

_STAGES = ("open", "closed", "running", "settling", "settled", "released", "published")


def read_steps(race: RaceView, row: RaceRow, now_ms: int) -> tuple[RaceStep, ...]:
    """The stages of a race, and how far it is. Of a cancelled one, stages that it never came to are not done."""
    reached: str = row.stage if row.stage in _STAGES else "open"
    if race.release is not None:
        reached = "published" if race.moment == "published" else "released"
    draw = race.state.draw if race.state is not None else None
    is_cancelled = row.stage == "cancelled"
    state = race.state
    ran = [f"{len(draw.drawn)} problems drawn"] if draw is not None else []
    if row.episodes:  # of how many, where one validator alone evaluates the race
        is_alone = state is not None and state.field is not None and len(state.field.validators) == 1
        items = (state.items or 0) if state is not None and is_alone and row.stage == "running" else 0
        ran.append(f"{row.episodes}{f' of {items}' if items > row.episodes else ''} episodes evaluated")
    says = {
        "closed": f"{row.agents} agents in the field" if row.agents else "",
        "running": ", ".join(ran),
        "settled": "cancelled" if is_cancelled else "",
        "released": "problems and results are public" if race.release is not None else "",
    }
    is_closed = row.closes_ms is not None and row.closes_ms <= now_ms
    is_opened = row.opens_ms is not None and row.opens_ms <= now_ms
    moments = {
        "open": ("closed" if is_closed else "closes", row.closes_ms),
        "published": ("source and traces opened" if is_opened else "source and traces open", row.opens_ms),
    }
    place = _STAGES.index("settled" if is_cancelled else reached)
    skipped = ("running", "settling") if is_cancelled and draw is None else ()
    return tuple(
        RaceStep(
            name=name,
            is_done=number < place and name not in skipped,
            is_current=number == place,
            says=says.get(name, ""),
            at_says=moments[name][0] if name in moments else "",
            at_ms=moments[name][1] if name in moments else None,
        )
        for number, name in enumerate(_STAGES)
    )


def read_qualified(settlement: SettlementRecord, rows: Mapping[str, ListedAgent]) -> tuple[Qualified, ...]:
    """Who raced and with which qualifying score, best first; none where the settlement does not state it."""
    field = settlement.inputs.field if settlement.inputs is not None else ()
    ranked = sorted(field, key=lambda one: (-one.qualifying_score_e4, one.subject.agent_version_id))
    return tuple(
        Qualified(
            agent=name_of(rows, one.subject.agent_version_id),
            score_e4=one.qualifying_score_e4,
            is_incumbent=one.is_incumbent,
        )
        for one in ranked[:LEADERS]
    )


def void_reason(settlement: SettlementRecord) -> str:
    """By which rule problems of this race are void."""
    try:
        rules = policy_of(settlement).race
    except ArenaError:
        return "too many results on it are missing"
    needed = results_needed(rules, len(settlement.inputs.validators) if settlement.inputs else 1)
    lacking = "no validator has" if needed == 1 else f"fewer than {needed} validators have"
    if rules.control_sha256:
        return f"{lacking} a result of the control agent on it"
    return f"{lacking} a result on it for two agents or more, at least {rules.void_agents_e4 / 100:g} % of the field"
