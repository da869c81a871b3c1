"""Why a shared race ended without a settlement of this validator's own, in words an operator can act on.

Pure; it explains what `arena.race.state.decider` decided and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from arena.race.consensus.agreement import NO_QUORUM, counted_roll, stakes, stakes_by_value, validators_of
from arena.race.consensus.log_round import AnchoredLog, lacking
from arena.race.settlement.provenance import differences
from arena.race.state.events import RaceSettled
from arena.race.state.machine import RaceState
from arena.race.state.timeline import Roll
from foundation.errors import Failure


def explain_end(state: RaceState, event: RaceSettled, held: Mapping[Roll, Iterable[AnchoredLog]]) -> Failure | None:
    """V2100 where nothing had the quorum, V2101 where others settled what this validator could not; None for a race
    that ended as it should. `state` is the race before the event, `held` the logs this node has for each roll."""
    settled = event.settlement
    if event.is_adopted:
        if state.proposed is not None:
            return Failure(code="V2101", detail=f"differs in {', '.join(differences(state.proposed, settled))}")
        return Failure(code="V2101", detail=_what_is_lacking(state, held))
    if settled.state != "cancelled" or NO_QUORUM not in settled.reason:
        return None
    if settled.reason == NO_QUORUM:
        roll, read = counted_roll(state, "results"), state.read("countersign")
        if roll is None or read is None:
            return Failure(code="V2100", detail="nobody's commitments could be read")
        behind = stakes_by_value(roll, read.commitments, stakes(state, "results"))
        most = max(behind.values(), default=0)
        took = f"{len(roll.participants)} of {len(validators_of(state))} validators took part"
        said = f"{took}, with {roll.participating_rao} rao; {len(behind)} values, at most {most} rao behind one"
        return Failure(code="V2100", detail=said)
    return Failure(code="V2101", detail=_what_is_lacking(state, held))


def _what_is_lacking(state: RaceState, held: Mapping[Roll, Iterable[AnchoredLog]]) -> str:
    if state.read("closing") is None:
        return "the closing block could not be read"
    if state.field is None:
        roll = counted_roll(state, "field")
        missing = lacking(roll.logs, held["field"]) if roll is not None else ()
        return f"the field was not known in time; lacking the logs of {_names(missing)}"
    roll = counted_roll(state, "results")
    if roll is None:
        return "the anchors or receipts of the results could not be read"
    return f"lacking the logs of {_names(lacking(roll.logs, held['results']))}"


def _names(logs: Iterable[AnchoredLog]) -> str:
    return ", ".join(log.validator for log in logs) or "nobody"
