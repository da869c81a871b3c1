"""A node for the pages: three finished races (the last under embargo), one void, one running, in a real signed log.

Settlements are computed from the records written (`arena.race.settle`), so standings, intervals and
promotions on the pages are those of this log.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from arena.gate.report import Finding, GateReport
from arena.race.events import (
    BatchReleased,
    Event,
    FieldFixed,
    ItemsEnqueued,
    ProblemsDrawn,
    RaceClosed,
    RaceSettled,
    SettlementDue,
    encode_event,
)
from arena.race.machine import open_race, promoted, stream_of
from arena.race.scores import LoggedRecord, control_subject
from arena.race.settle import settle
from arena.records.body import encode_body
from arena.records.log import Checkpoint, checkpoint_of, sign_checkpoint, signing_message
from arena.records.merkle import MerkleFrontier
from arena.records.model import (
    AttemptRecord,
    Candidate,
    Context,
    EvaluationRecord,
    Payload,
    ReleasedProblem,
    ReleaseRecord,
    SettlementRecord,
    StoredBody,
    StoredCheckpoint,
    Top,
    VerdictRecord,
)
from arena.records.port import StoredSubmission
from arena.store.postgres import PostgresStore
from foundation.canonical import text_hash
from tests.arena.log_stand import CONDITIONS, LEVEL
from tests.arena.race_stand import BEACON, changed, inputs_of
from tests.arena.tail_stand import Author
from tests.web.episode_stand import (
    DAY_MS,
    EMBARGOED,
    HOUR_MS,
    NAMES,
    NOW_MS,
    PLAIN,
    RACES,
    RULES,
    RUNNING,
    SECOND_VERSION,
    VOID,
    Words,
    batch_of,
    body_of,
    drawn_of,
    outcome_of,
    subject,
    verdict_on,
)


class Site:
    """Writes the log of a site and knows what stands where."""

    def __init__(self, author: Author, words: Words = PLAIN) -> None:
        self.author, self.words = author, words
        self.size = 0
        self.policy_sha256 = RULES.policy_sha256
        self._most = len(NAMES)
        self._events: dict[str, list[Event]] = {}

    def racers(self, race_number: int) -> tuple[int, ...]:
        """Later races have two agents more; one of them takes the place of its miner's first version."""
        racing = [n for n in range(len(NAMES)) if n != 2] if race_number else range(SECOND_VERSION)
        return tuple(racing[: self._most])

    def field(self, race_number: int) -> tuple[Candidate, ...]:
        racing = self.racers(race_number)
        return tuple(Candidate(subject=subject(n, self.words), qualifying_score_e4=5_000) for n in racing)

    def run(
        self, race_number: int, agents: Sequence[int], problem_ids: Sequence[str]
    ) -> tuple[list[LoggedRecord[EvaluationRecord]], list[LoggedRecord[VerdictRecord]]]:
        """Episodes of a race, written; and as a settlement counts them."""
        race_id, rng = RACES[race_number], random.Random(race_number)
        self.author.turn_clock(self.closes_ms(race_number) + HOUR_MS)
        payloads: list[Payload] = []
        bodies: list[StoredBody] = []
        evaluations, verdicts = [], []
        for number in agents:
            skill = 0.95 - 0.09 * number + 0.04 * (race_number if number == 1 else 0)
            for problem, problem_id in enumerate(problem_ids):
                is_agentic = rng.random() < 0.9 - 0.08 * number
                body = body_of(number, problem_id, self.words, rng, is_agentic=is_agentic)
                stored = encode_body(body)
                is_success = rng.random() < skill
                about = {
                    "subject": subject(number, self.words),
                    "context": Context(
                        stage="race",
                        race_id=race_id,
                        problem_id=problem_id,
                        batch_sha256=batch_of(race_id).batch_sha256,
                    ),
                }
                attempt = f"{race_id}-{number}-{problem}:1"
                payloads.append(
                    AttemptRecord(attempt_id=attempt, ended="evaluated", body_sha256=stored.body_sha256, **about)
                )
                evaluation = EvaluationRecord(
                    attempt_id=attempt,
                    conditions=replace(CONDITIONS, policy_sha256=self.policy_sha256, sandbox=LEVEL),
                    body_sha256=stored.body_sha256,
                    stop="terminated",
                    failure=None,
                    is_agentic=is_agentic,
                    totals=body.totals,
                    outcome=outcome_of(problem_id, rng, is_success=is_success),
                    **about,
                )
                seq = self.size + len(payloads) + 1
                payloads.append(evaluation)
                evaluations.append(self._counted(LoggedRecord[EvaluationRecord], seq, evaluation))
                if is_success:
                    quality = (9_000, 8_000, 6_000)[(number + problem) % 3] if is_agentic else 3_000
                    said = VerdictRecord(verdict=verdict_on(stored, body, self.words, quality), **about)
                    payloads.append(said)
                    verdicts.append(self._counted(LoggedRecord[VerdictRecord], seq + 1, said))
                bodies.append(stored)
        self.size = self.author.append(payloads, bodies)
        return evaluations, verdicts

    def _counted(self, kind: type, seq: int, record: Payload):
        name = self.author.signer.hotkey
        return kind(validator=name, seq=seq, content_sha256=text_hash(f"{name} {seq}"), record=record)

    def settle(
        self, race_number: int, incumbent: Top | None, history: Sequence[SettlementRecord], *, is_drawn: bool = True
    ) -> SettlementRecord:
        race_id, field = RACES[race_number], self.field(race_number)
        evaluations, verdicts = (
            self.run(race_number, self.racers(race_number), drawn_of(race_id)) if is_drawn else ([], [])
        )
        if race_number == 1:  # two agents have no result on one problem, so that it counts for nobody
            lost = {drawn_of(race_id)[3]}
            evaluations = [one for one in evaluations if one.record.context.problem_id not in lost]
            verdicts = [one for one in verdicts if one.record.context.problem_id not in lost]
        of_problem = {one.record.context.problem_id: one for one in evaluations}
        for name, one in of_problem.items():  # the control agent fails all, and so has a result on each
            failed = outcome_of(name, random.Random(0), is_success=False)
            seen = replace(
                one.record, subject=control_subject(RULES.race), attempt_id=f"control-{name}:1", outcome=failed
            )
            evaluations.append(self._counted(LoggedRecord[EvaluationRecord], one.seq + 100_000, seen))
        made = inputs_of(
            race_id,
            RULES,
            batch_of(race_id),
            field,
            (self.author.signer.hotkey,),
            evaluations=tuple(evaluations),
            verdicts=tuple(verdicts),
        )
        record = settle(
            changed(
                made,
                closing_block=1_000 * race_number + 50,
                closes_ms=self.closes_ms(race_number),
                settling_block=1_000 * race_number + 400,
                beacon=BEACON if is_drawn else None,
                incumbent=incumbent,
                history=tuple(history),
            )
        )
        self.size = self.author.append([record])
        return record

    def closes_ms(self, race_number: int) -> int:
        return NOW_MS - (len(RACES) - 1 - race_number) * 7 * DAY_MS - DAY_MS // 2

    def release(self, race_number: int) -> None:
        race_id = RACES[race_number]
        last = drawn_of(race_id)[-1]
        opens_ms = NOW_MS + DAY_MS if race_id == EMBARGOED else self.closes_ms(race_number) + DAY_MS
        problems = tuple(
            ReleasedProblem(
                problem_id=one.problem_id,
                pool="eval" if one.problem_id == last else "train",
                cluster_id=text_hash(f"c{n // 2}")[:16],
            )
            for n, one in enumerate(batch_of(race_id).problems)
        )
        batch = batch_of(race_id)
        self.size = self.author.append(
            [
                ReleaseRecord(
                    race_id=race_id,
                    batch_sha256=batch.batch_sha256,
                    problems=problems,
                    salt="99" * 32,
                    opens_ms=opens_ms,
                )
            ]
        )

    def fill(self, agents: int = 0) -> None:
        """Write everything; with `agents`, of the first so many agents of each race alone."""
        self._most = agents or len(NAMES)
        top, history = None, []
        for number in range(3):
            before = top
            record = self.settle(number, top, history)
            history.append(record)
            top = promoted(record, self.closes_ms(number)) if record.is_promotion else top
            self.release(number)
            self._events[RACES[number]] = self.events(number, before, record)
        void = self.settle(3, top, history, is_drawn=False)
        self._events[VOID] = self.events(3, top, void)
        self.run(4, self.racers(4)[:3], drawn_of(RUNNING)[:4])
        self._events[RUNNING] = self.events(4, top, None)
        asyncio.run(self._others())

    def events(self, race_number: int, top: Top | None, settlement: SettlementRecord | None) -> list[Event]:
        """The stream of a race until now."""
        race_id, closes_ms = RACES[race_number], self.closes_ms(race_number)
        drawing: list[Event] = [
            ProblemsDrawn(beacon=BEACON, seed="ab" * 32, drawn=drawn_of(race_id), drawn_ms=closes_ms + 60_000),
            ItemsEnqueued(items=80),
        ]
        ending: list[Event] = []
        if settlement is not None:
            ending = [SettlementDue(settling_block=1_400, why="all done"), RaceSettled(settlement=settlement)]
        if settlement is not None and settlement.drawn:
            ending.append(BatchReleased(batch_sha256=batch_of(race_id).batch_sha256))
        return [
            open_race(race_id, RULES, batch_of(race_id), closes_ms - DAY_MS, closes_ms=closes_ms),
            RaceClosed(closing_block=1_050, beacon_network=BEACON.network, beacon_round=BEACON.round),
            FieldFixed(field=self.field(race_number), validators=(self.author.signer.hotkey,), incumbent=top),
            *(drawing if settlement is None or settlement.drawn else ()),
            *ending,
        ]

    async def _others(self) -> None:
        store = await PostgresStore.open(self.author.dsn, self.author.signer.hotkey)
        try:
            for race_id, events in self._events.items():
                for index, event in enumerate(events):
                    await store.put_event(stream_of(race_id), index, encode_event(event))
            for number, name in enumerate(self.words.names):
                found = Finding(
                    rule="id-table", outcome="review", severity="integrity", line=2, detail=self.words.finding
                )
                report = GateReport(
                    outcome="review", findings=(found,), rules_version="gate/3", source_sha256="1", inputs_sha256="2"
                )
                stored = StoredSubmission(
                    subject=subject(number, self.words),
                    name=name,
                    state="qualified" if number < 6 else "review",
                    report=msgspec.json.encode(report).decode(),
                )
                await store.put_submission(stored, self.words.source)
            await self._checkpoint(store)
        finally:
            await store.close()

    async def _checkpoint(self, store: PostgresStore) -> None:
        validator, tree = self.author.signer.hotkey, MerkleFrontier()
        async for leaf in store.leaves(validator):
            tree.append(signing_message(validator, leaf.seq, leaf.prev, leaf.content_sha256))
        point: Checkpoint = checkpoint_of(validator, tree)
        note = sign_checkpoint(point, self.author.signer)
        await store.put_checkpoint(StoredCheckpoint(validator=validator, size=point.size, note=note, signed_ms=NOW_MS))
