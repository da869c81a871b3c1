"""Races as a store tells them: what its log says of one, incrementally; which there are; settled ones from records.

A fold over signed records and nothing else (`arena.race.admission`), so a restart rebuilds exactly the
same picture. A settlement or release counts only when it is this store's. `race_id` "" stands for qualifying, which
never ends: a node asks it to be `lasting`, and then it keeps what is owed or undecided. A settled race is read from
this store's logs and those pulled from other validators; a record whose bytes are not those of its hash is named.
Results on raced problems are explained from the batches and catalogues that a state folder knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from arena.bank.batch import BatchExplainer
from arena.policy import Policy
from arena.race.admission import RaceRecords, is_success
from arena.race.draw import SuiteEnd, suite_ends
from arena.race.machine import Force, RaceState, coming_race, force_of, replay, stream_of
from arena.race.scores import SettlementInputs
from arena.race.settle import differences, inputs_again, policy_of, settle
from arena.records.body import decode_content
from arena.records.model import Payload, ReleaseRecord, SettlementRecord, SignedRecord
from arena.store.location import StoreLocation
from arena.store.objects import open_objects
from arena.store.postgres import PostgresStore
from foundation.errors import ArenaError
from problems.score import ProductOf

if TYPE_CHECKING:
    from arena.exchange.peer_logs import HeldLog, PeerLogStore
    from arena.export.model import LogRow

QUALIFYING = ""  # the race id under which qualifying runs


class RaceLog(RaceRecords):
    """The records of one race, of every validator whose log the store shows."""

    def __init__(self, store: PostgresStore, race_id: str, *, is_lasting: bool = False) -> None:
        """`is_lasting`: keep what is owed or undecided and no more; for qualifying, since a settlement needs every
        record."""
        super().__init__(is_lasting=is_lasting)
        self._store, self._race_id = store, race_id
        self._reading = asyncio.Lock()
        self._last_seq: dict[str, int] = {}
        self._ends: dict[tuple[str, str], SuiteEnd] = {}  # own ones of a lasting log, by agent and policy hash
        self.settlement: SettlementRecord | None = None
        self.release: ReleaseRecord | None = None

    async def refresh(self) -> None:
        """Read what was appended since the last call."""
        async with self._reading:
            for validator in await self._store.validators():
                last = self._last_seq.get(validator, 0)
                async for record in self._store.records(validator, after_seq=last, race_id=self._race_id):
                    if record.seq <= self._last_seq.get(validator, 0):  # a row that was doubled counts once
                        continue
                    payload = decode_content(record.content).payload
                    self.take(validator, record.seq, record.content_sha256, payload)
                    if validator == self._store.validator and isinstance(payload, SettlementRecord):
                        self.settlement = self.settlement or payload
                    if validator == self._store.validator and isinstance(payload, ReleaseRecord):
                        self.release = self.release or payload
                    self._last_seq[validator] = record.seq

    def owed_successes(self) -> int:
        """Own evaluations whose success may still get its verdict: what a settlement waits for."""
        return sum(is_success(row.record) for row in self.owed(self._store.validator))

    def own_suite_end(self, agent_version_id: str, problem_ids: Iterable[str], policy: Policy) -> SuiteEnd | None:
        """How an agent's suite ended at this validator under `policy`, from the records so far; None: it has not.

        Results under another policy don't count. A failed or closed item withdraws its problem when the problem was at
        fault, and is a zero when the agent was; any other leaves the agent pending. In a lasting log the end stands
        for this process once there is one, whatever comes later.
        """
        agent = (agent_version_id, policy.policy_sha256)
        if agent in self._ends:
            return self._ends[agent]
        found = suite_ends(self.qualifying_results(*agent), problem_ids, policy).get(self._store.validator)
        if self.is_lasting and found is not None:
            self._ends[agent] = found
            self.forget(*agent)
        return found


async def open_reading(location: StoreLocation, stack: contextlib.AsyncExitStack) -> PostgresStore:
    """One more way to a node's log and its bodies: a crowd of readers takes none of another's connections. Raises
    ArenaError V2021, V2029."""
    objects = open_objects(location.objects) if location.objects else None
    store = await PostgresStore.open(location.dsn, location.validator, objects=objects)
    stack.push_async_callback(store.close)
    return store


async def race_names(store: PostgresStore) -> list[str]:
    """The races of a store, in the order in which they were opened."""
    prefix = stream_of("")
    return [stream.removeprefix(prefix) for stream in await store.streams(prefix)]


async def read_state(store: PostgresStore, race_id: str) -> RaceState:
    """A race as its events tell it."""
    return replay(race_id, await store.events(stream_of(race_id)))


def owners_of(state: RaceState) -> dict[str, str]:
    """By hotkey of the field: who is charged for its agent's worker time."""
    field = state.field.field if state.field else ()
    return {candidate.subject.miner_hotkey: candidate.owner for candidate in field}


async def newest_race(store: PostgresStore) -> RaceState | None:
    """The race that was opened last; None before the first."""
    names = await race_names(store)
    return await read_state(store, names[-1]) if names else None


class RaceList:
    """Reads races from a store. States that can't change any more are read once."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.finished: dict[str, RaceState] = {}  # those that were read and can't change any more, oldest first

    async def states(self, now_ms: int, policy: Policy) -> list[RaceState]:
        """Every race so far, the current one last (stage `new` when it has no event yet)."""
        states: list[RaceState] = []
        for name in await race_names(self._store):
            state = self.finished.get(name) or await read_state(self._store, name)
            states.append(state)
            if not state.is_finished:
                return states
            self.finished[name] = state
        return [*states, RaceState(race_id=coming_race(states, now_ms, policy)[0])]


class SettledRace(msgspec.Struct, frozen=True, kw_only=True):
    """One race as this validator has it. `force`: whose settlement is in force here; none: nothing had a quorum, and
    it is this validator's word alone; "": not decided yet, or this login can't read the events. `differing`: of
    an adopted one, what this validator's own record states otherwise; None: it has no record of its own."""

    settlement: SettlementRecord
    force: Force
    differing: tuple[str, ...] | None = ()


async def read_settled(store: PostgresStore, validator: str) -> list[SettledRace]:
    """Every settled race of a validator, oldest first: what its log says, and what it adopted instead.

    Raises ArenaError V2050 for a record whose bytes are not those of its hash.
    """
    own: dict[str, SettlementRecord] = {}  # the first of each race
    async for record in store.records(validator, kinds=("settlement",)):
        payload = _payload(record)
        if isinstance(payload, SettlementRecord):
            own.setdefault(payload.race_id, payload)
    found = {name: SettledRace(settlement=each, force="") for name, each in own.items()}
    for name in await race_names(store) if store.validator == validator else ():
        state = await read_state(store, name)
        if state.settlement is None:
            continue
        if (force := force_of(state)) != "adopted":
            given = own.get(name, state.settlement)  # where it settled nothing itself, why
            found[name] = SettledRace(settlement=given, force=force, differing=() if name in own else None)
            continue
        for given in (*state.adopted_history, state.settlement):
            mine = own.get(given.race_id)
            differing = None if mine is None else differences(mine, given)
            found[given.race_id] = SettledRace(settlement=given, force="adopted", differing=differing)
    return sorted(found.values(), key=lambda each: each.settlement.closing_block)


async def read_race(store: PostgresStore, held: PeerLogStore | None, given: SettlementRecord) -> RaceRecords:
    """Every record of a settled race in the logs this store shows and in the counted ones that were pulled.

    Raises ArenaError V2050 for a record whose bytes are not those of its hash, or for a counted log that is not
    here, V2064 for a pulled one that was changed.
    """
    records, race_id = RaceRecords(), given.race_id
    own = await store.validators()
    for validator in own:
        async for record in store.records(validator, race_id=race_id):
            records.take(validator, record.seq, record.content_sha256, _payload(record))
    counted = given.inputs.logs if given.inputs else ()
    for log in (log for log in counted if log.validator not in own):
        found = held.find(log.validator, race_id, log.note_sha256) if held else None
        if held is None or found is None:
            raise ArenaError("V2050", f"{race_id}: the log of {log.validator} is not held here")
        take_pulled(records, held, found)
    return records


def take_pulled(records: RaceRecords, held: PeerLogStore, log: HeldLog) -> None:
    """Take in what a pulled log says of its race. Raises ArenaError V2050 and V2064 as `read_race`."""
    for row in held.rows(log):
        if row.content is not None:
            records.take(row.validator, row.seq, row.content_sha256, _payload(row))


def replay_race(
    given: SettlementRecord,
    records: RaceRecords,
    settlements: Sequence[SettlementRecord],
    policy: Policy | None = None,
) -> tuple[SettlementRecord, SettlementInputs]:
    """Settle a race again from its records, under its own policy or another; the settlement, and what it came from.

    `settlements` are those in force, oldest first, the race's own among them. Another policy ranks, promotes and pays;
    what was drawn, and how many raced each problem, stays as it was. Raises ArenaError V2050 where the record states no
    inputs, or something it names is missing or another.
    """
    earlier = list(itertools.takewhile(lambda each: each.race_id != given.race_id, settlements))
    other = None
    if policy is not None:  # with the sizes of the race that was run: its records can answer no other question
        raced = policy_of(given)
        sizes = ("problems", "batch_problems", "validators_per_problem", "results_required", "control_sha256")
        race = replace(policy.race, **{name: getattr(raced.race, name) for name in sizes})
        other = replace(policy, race=race, rubric=raced.rubric, guest=raced.guest)
    inputs = inputs_again(
        given, records.evaluations, records.verdicts, earlier, policy=other, attempts=records.attempts
    )
    return settle(inputs), inputs


def _payload(record: SignedRecord | LogRow) -> Payload:
    content = bytes(record.content or b"")
    if hashlib.sha256(content).hexdigest() != record.content_sha256:
        raise ArenaError("V2050", f"record {record.seq} of {record.validator}: its bytes are not those of its hash")
    return decode_content(content).payload


def open_explainer(state_dir: Path, catalogue: Path | None = None) -> BatchExplainer:
    """Explains from the batches in a state folder, over `catalogue` (an index folder) and those beside them. Opens
    nothing yet."""
    from harness.catalogue.layout import read_manifest  # with NumPy, which `arena validator status` has no need of
    from harness.catalogue.native import open_catalogue

    opened: dict[str, ProductOf] = {}

    def products_of(catalogue_sha256: str) -> ProductOf | None:
        folders = [*([catalogue] if catalogue else []), *sorted((state_dir / "catalogues").glob("*/"))]
        for folder in folders if catalogue_sha256 not in opened else ():
            try:
                if read_manifest(folder).content_sha256 == catalogue_sha256:
                    opened[catalogue_sha256] = open_catalogue(folder, kernel="numpy").product
                    break
            except (ArenaError, OSError):  # no index, or one of another release
                continue
        return opened.get(catalogue_sha256)

    return BatchExplainer(state_dir / "bank", products_of)
