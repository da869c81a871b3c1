"""Reads a node's status from its state folder and its store, without the node having to run.

It writes nothing and reads little, whatever the log's length: the head, the newest checkpoints, the events of
one race, a few result rows. A store that can't be read becomes a point of the status; what the node last said of itself
is shown all the same.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from arena.policy import RaceRules
from arena.race.consensus.agreement import is_shared
from arena.race.state.machine import RaceState
from arena.race.state.timeline import timeline
from arena.store.port import Store, StoredCheckpoint
from foundation.errors import Failure
from neurons.health.node_file import read_node_file
from neurons.health.status import Deadline, RaceFacts, Status, StoreFacts, assess
from neurons.race.listing import race_names, read_state
from neurons.race.log import QUALIFYING

WEIGHTS_SHOWN = 50
_RECENT = 5_000  # records behind the head in which the newest checkpoint and anchor usually are
_MOMENTS = {
    "field_anchor_ms": "logs for the field are anchored by",
    "field_receipt_ms": "receipts of the field's logs count until",
    "settling_ms": "results are anchored by",
    "results_receipt_ms": "receipts of the results' logs count until",
    "countersign_ms": "countersignatures count until",
    "give_up_ms": "missing logs accepted until",
    "abandon_ms": "the quorum's settlement accepted until",
}


async def read_store(store: Store, now_ms: int) -> StoreFacts:
    """What the store says of its hotkey. Raises ArenaError V2021 when it goes away, V2023 for another schema."""
    head = await store.head()
    found: list[StoredCheckpoint] = []
    for after in (max(0, head.seq - _RECENT), 0):
        found = await store.checkpoints(after_size=after)
        if after == 0 or any(checkpoint.anchor_block for checkpoint in found):
            break
    newest = found[-1] if found else None
    anchored = next((checkpoint for checkpoint in reversed(found) if checkpoint.anchor_block), None)
    return StoreFacts(
        hotkey=store.validator,
        records=head.seq,
        checkpoint_size=newest.size if newest else 0,
        checkpoint_ms=newest.signed_ms if newest else 0,
        anchor_size=anchored.size if anchored else 0,
        anchor_ms=anchored.signed_ms if anchored else 0,
        anchor_block=anchored.anchor_block if anchored else 0,
        race=await read_race(store, now_ms),
        open_qualifying=await store.open_items(QUALIFYING, "qualifying"),
        weights=tuple(await store.weights_results(WEIGHTS_SHOWN)),
    )


async def read_race(store: Store, now_ms: int) -> RaceFacts | None:
    """The newest race that was opened; None before the first. Raises as `read_store`."""
    names = await race_names(store)
    if not names:
        return None
    name, state = names[-1], await read_state(store, names[-1])
    return RaceFacts(
        race_id=name,
        stage=state.stage,
        timezone=state.opened.policy.race.timezone if state.opened else RaceRules().timezone,
        deadline=next_deadline(state, store.validator, now_ms),
        open_items=await store.open_items(name, "race"),
    )


def look(state_dir: Path, store: StoreFacts | None, now_ms: int, store_failure: Failure | None = None) -> Status:
    """The status of the node of a state folder, given what its store says."""
    folder = state_dir
    while not folder.exists():
        folder = folder.parent
    return assess(now_ms, read_node_file(state_dir), store, shutil.disk_usage(folder).free, store_failure)


def next_deadline(state: RaceState, validator: str, now_ms: int) -> Deadline | None:
    """What happens next in a race, at the latest when; None when it is settled, cancelled or not open yet.

    A race that `validator` shares with others goes by its timeline (arena/race/AGREEMENT.md); one alone settles as soon
    as it can, and its deadlines are the policy's. Once all have passed, the last one.
    """
    if state.opened is None or state.stage in ("settled", "cancelled"):
        return None
    rules, closes_ms = state.opened.policy.race, state.opened.closes_ms
    if state.stage == "open":
        return Deadline(what="submissions close", at_ms=closes_ms)
    if is_shared(state, validator):
        moments = timeline(closes_ms, rules)
        coming = [Deadline(what=what, at_ms=getattr(moments, name)) for name, what in _MOMENTS.items()]
        return next((deadline for deadline in coming if deadline.at_ms > now_ms), coming[-1])
    if state.stage == "closed" and state.field is None:
        return Deadline(what="the field is fixed by", at_ms=closes_ms + rules.qualifying_grace_ms)
    if state.stage == "closed":
        return Deadline(what="the beacon has to come by", at_ms=closes_ms + rules.beacon_grace_ms)
    drawn_ms = state.draw.drawn_ms if state.draw else closes_ms
    return Deadline(what="results accepted until", at_ms=max(closes_ms, drawn_ms) + rules.run_ms)
