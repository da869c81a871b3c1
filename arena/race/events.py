"""What happens to a race (events, persisted) and what its driver should do next (effects, never persisted).

Events are JSON text in the store's stream `race/<race id>`, numbered from 0; replaying them gives the state. Effects
are answers of `decide`: each says which event the driver appends once it is done, and each may be carried out twice.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from arena.bank.batch import Batch
from arena.chain.port import BeaconRound, Commitment, Metagraph
from arena.policy import Policy
from arena.race.logs import AnchoredLog, ProgressClaims
from arena.race.schedule import Moment, Roll
from arena.records.model import Candidate, SettlementRecord, Top
from arena.records.port import WorkItem


class RaceOpened(msgspec.Struct, frozen=True, kw_only=True, tag="opened", tag_field="event"):
    """A batch was sealed for this race; submissions may qualify until `closes_ms`.

    The race runs and settles under `policy`, whatever its validator is started with later. `policy_sha256` is what the
    policy's hash was when the race opened.
    """

    race_id: str
    policy: Policy
    policy_sha256: str
    batch: Batch
    opened_ms: int
    closes_ms: int


class RaceClosed(msgspec.Struct, frozen=True, kw_only=True, tag="closed", tag_field="event"):
    """The close has passed. Commitments up to `closing_block` count; the round is the first after the close."""

    closing_block: int
    beacon_network: str
    beacon_round: int


class ChainRead(msgspec.Struct, frozen=True, kw_only=True, tag="read", tag_field="event"):
    """What the chain held at a moment of the race, read once its block was final: nodes forget old state, this stays.

    `metagraph` at the closing and the settling block; `commitments` of every hotkey at the closing block, of the race's
    validators at the others.
    """

    moment: Moment
    block: int
    commitments: tuple[Commitment, ...]
    metagraph: Metagraph | None = None


class Committed(msgspec.Struct, frozen=True, kw_only=True, tag="committed", tag_field="event"):
    """This validator's slot holds what it states at a moment of the race. An anchor: with its checkpoint's size and
    root."""

    moment: Moment
    sha256: str
    size: int = 0
    root: str = ""


class FieldFixed(msgspec.Struct, frozen=True, kw_only=True, tag="field", tag_field="event"):
    """Who races against whom, and who may evaluate: permits at the closing block."""

    field: tuple[Candidate, ...]
    validators: tuple[str, ...]
    incumbent: Top | None = None


class ProblemsDrawn(msgspec.Struct, frozen=True, kw_only=True, tag="drawn", tag_field="event"):
    """The beacon came; the draw follows from it."""

    beacon: BeaconRound
    seed: str
    drawn: tuple[str, ...]
    drawn_ms: int


class ItemsEnqueued(msgspec.Struct, frozen=True, kw_only=True, tag="enqueued", tag_field="event"):
    """All work items of the race are in the queue."""

    items: int


class SettlementDue(msgspec.Struct, frozen=True, kw_only=True, tag="settling", tag_field="event"):
    """Nothing more is waited for; records up to `settling_block` count."""

    settling_block: int
    why: str


class SettlementProposed(msgspec.Struct, frozen=True, kw_only=True, tag="proposed", tag_field="event"):
    """The settlement record stands in this validator's log; whether others settled alike is not known yet.

    `words`: whose counted log held what it said was done (`arena.race.logs`); nobody's where it
    was not heard.
    """

    settlement: SettlementRecord
    words: ProgressClaims = ProgressClaims()


class RaceSettled(msgspec.Struct, frozen=True, kw_only=True, tag="settled", tag_field="event"):
    """How the race ended; it may say cancelled.

    `is_adopted`: the settlement has the quorum and is not this validator's own. The races to come follow from it, and
    from `history`, which it names; this validator's weights do not.
    """

    settlement: SettlementRecord
    is_adopted: bool = False
    history: tuple[SettlementRecord, ...] = ()


class BatchReleased(msgspec.Struct, frozen=True, kw_only=True, tag="released", tag_field="event"):
    """The whole batch is public and burnt."""

    batch_sha256: str


Event = (
    RaceOpened
    | RaceClosed
    | ChainRead
    | Committed
    | FieldFixed
    | ProblemsDrawn
    | ItemsEnqueued
    | SettlementDue
    | SettlementProposed
    | RaceSettled
    | BatchReleased
)


class SealBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Seal a batch that can serve the policy's draw for this race alone, then append `open_race(..)`."""


class FixField(msgspec.Struct, frozen=True, kw_only=True):
    """Read qualified agents, the incumbent and permits at `closing_block`, then append FieldFixed.

    `logs`: those that the field roll counted, all of them held; of a validator alone its own as it is.
    """

    closing_block: int
    logs: tuple[AnchoredLog, ...]


class FetchBeacon(msgspec.Struct, frozen=True, kw_only=True):
    """Fetch and verify the round; hand it in as `RaceObservation.beacon` at the next turn. Appends nothing."""

    round: int


class EnqueueItems(msgspec.Struct, frozen=True, kw_only=True):
    """Enqueue these items (idempotent by item id), then append ItemsEnqueued."""

    items: tuple[WorkItem, ...]


class Settle(msgspec.Struct, frozen=True, kw_only=True):
    """Close the race's work items, settle from the records, append the settlement record unless the log holds one, then
    append SettlementProposed. `logs` as for `FixField`, of the results roll."""

    settling_block: int
    logs: tuple[AnchoredLog, ...]


class ReleaseBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Append the release record unless the log holds one, then append BatchReleased."""

    batch_sha256: str


class ReadChain(msgspec.Struct, frozen=True, kw_only=True):
    """Read the block of `at_ms` once it is final, then append ChainRead. `hotkeys`: whose commitments; None: all."""

    moment: Moment
    at_ms: int
    hotkeys: tuple[str, ...] | None


class AnchorLog(msgspec.Struct, frozen=True, kw_only=True):
    """Sign a checkpoint of the log as it is, with the tally of what counts in this roll, and commit it, then append
    Committed. One that this node committed for this moment already is not replaced."""

    moment: Moment
    roll: Roll


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Commit these 32 bytes unless the slot holds them, then append Committed."""

    moment: Moment
    sha256: str


class PullLogs(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the other validators for these logs; what is held then stands in `RaceObservation.held`. What comes after
    `until_ms` (unix) is of no use. Appends nothing."""

    roll: Roll
    logs: tuple[AnchoredLog, ...]
    until_ms: int


class EnqueueStandIns(msgspec.Struct, frozen=True, kw_only=True):
    """Enqueue of these pairs of validators that gave nothing as many new ones as there is `room` for (idempotent by
    item id). Those that are left are due again at a later turn, unless they were done by then. Appends nothing."""

    items: tuple[WorkItem, ...]
    room: int


class AdoptSettlement(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the other validators for the settlement that `value` countersigns, and those it names, check both by their
    hashes, then append RaceSettled as adopted."""

    value: str


Effect = (
    SealBatch
    | FixField
    | FetchBeacon
    | EnqueueItems
    | Settle
    | ReleaseBatch
    | ReadChain
    | AnchorLog
    | Commit
    | PullLogs
    | EnqueueStandIns
    | AdoptSettlement
)


class RaceObservation(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver sees at one moment.

    `closing_block` is the last block not later than the close, None while it is not known. `beacon_network` and
    `beacon_round` are those of `Beacon.round_after(closes_ms)`; `beacon` is that round once fetched and verified, and
    the batch opened with it; `batch_failure` is the code with which the batch did not open although the round is out.
    `is_beacon_asked`: after the beacon's grace this process asked for the round and was told that it is not there; one
    that was down has asked nobody yet. `held` names the logs that it holds whole for the roll to come, its own as it
    was anchored among them; `done` says which (agent, problem) pairs those of the others that are believed say they
    have done (`arena.race.logs`), None while they were not asked.
    """

    now_ms: int
    validator: str  # whose turn this is: its own items are enqueued
    finalized_block: int
    closing_block: int | None = None
    beacon_network: str = ""
    beacon_round: int = 0
    beacon: BeaconRound | None = None
    batch_failure: str = ""
    is_beacon_asked: bool = True
    pending_qualifying: int = 0  # agents committed since the race before, by the close, and not decided yet
    open_race_items: int = 0  # of this validator, read while the race runs
    owed_verdicts: int = 0  # race evaluations whose success has no verdict yet, and may still get one
    is_previous_settled: bool = True
    held: tuple[AnchoredLog, ...] = ()
    done: Mapping[str, frozenset[tuple[str, str]]] | None = None


_DECODER = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> str:
    """JSON text of an event, as the store keeps it."""
    return msgspec.json.encode(event).decode()


def decode_event(text: str) -> Event:
    """The event in a stored text. Raises msgspec.ValidationError or msgspec.DecodeError for anything else."""
    event: Event = _DECODER.decode(text)
    return event
