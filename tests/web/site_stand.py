"""A node for the pages: three finished races (the last under embargo), one void, one running, in a real signed log; and
every page of it by the state it is in.

Settlements are computed from the records written (`arena.race.settle`), so standings, intervals and
promotions on the pages are those of this log.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import NamedTuple

import httpx2
import msgspec
from msgspec.structs import replace

from arena.bank.batch import AcceptedProduct, Batch, Explanation, SealedProblem
from arena.gate.rules import finding, make_report
from arena.policies import DEMO
from arena.race import machine
from arena.race.draw import draw_problems, race_seed
from arena.race.scores import LoggedRecord, control_subject
from arena.race.settle import settle
from arena.records import model
from arena.records.body import encode_body
from arena.records.port import StoredSubmission
from arena.store.postgres import PostgresStore
from foundation.canonical import text_hash
from harness.trace import Completion, EvaluationBody, ToolCall
from judge.rubric import coefficient_e4
from judge.verdict import Citation
from problems.model import Axis, OutcomeScore
from problems.score import Constraint
from tests.arena.log_stand import CONDITIONS, LEVEL, body, episode, outcome, signed_note
from tests.arena.race_stand import BEACON, changed, inputs_of
from tests.arena.tail_stand import Author

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW_MS = 1_790_000_000_000 + 30 * DAY_MS
NAMES = ("lamp-finder", "budget-first", "careful-shopper", "hasty")
PROBLEMS, DRAWN, ANSWER = 12, 10, "2020"
RULES = replace(
    DEMO,
    race=replace(DEMO.race, problems=DRAWN, batch_problems=PROBLEMS, control_sha256=""),
    promotion=replace(DEMO.promotion, evidence_alone=600),
)
PUBLISHED, EMBARGOED, VOID, RUNNING = ("race-000001", "race-000002"), "race-000003", "race-000004", "race-000005"
RACES = (*PUBLISHED, EMBARGOED, VOID, RUNNING)
BUCKETS = ("product", "shop", "voucher")


class Words(NamedTuple):
    """Every foreign text of the site, so that it can be filled with hostile ones."""

    names: tuple[str, ...] = NAMES
    query: str = "a blue cotton shirt under 500 pesos"
    said: str = "The first lamp costs 480 pesos and ships free, so it fits the budget."
    product: str = "Blue cotton shirt, official store"
    judged: str = "It compares the price with the budget before it chooses."
    source: str = "def agent_main(problem):\n    return []\n"
    finding: str = "a constant that looks like a product id"
    long: str = ""  # said by one agent on one problem of a race


PLAIN = Words()


def agent_id(number: int) -> str:
    return f"{number + 16:02x}" * 32


def subject(number: int, words: Words) -> model.Subject:
    return model.Subject(
        agent_version_id=agent_id(number),
        miner_hotkey=f"5Miner{'ABCD'[number]}{'x' * 41}",
        agent_sha256=text_hash(words.source + str(number)),
        commitment_block=100 + number,
    )


def body_of(number: int, problem_id: str, words: Words, *, is_agentic: bool) -> EvaluationBody:
    """A trace of one turn: what the model said, and a search."""
    plain = body(number, 0)
    spoke, called = plain.events
    assert isinstance(spoke, Completion) and isinstance(called, ToolCall)
    said = words.said + (words.long if number == 0 and problem_id == drawn_of(problem_id[:-4])[0] else "")
    found = [{"product_id": f"101{n}", "title": f"{words.product} {n}", "price": 480 + n} for n in range(3)]
    spoke = replace(spoke, content=said, reasoning="The buyer asks for cotton.", calls=spoke.calls[:is_agentic])
    called = replace(called, result=json.dumps(found))
    by_code = {"emitter": "code", "emitted_call_id": ""}
    return replace(
        plain,
        problem_id=problem_id,
        bucket=BUCKETS[int(problem_id[-2:]) % 3],
        query=words.query,
        agent_sha256=subject(number, words).agent_sha256,
        messages=(json.dumps({"role": "user", "content": words.query}),),
        events=(spoke, called if is_agentic else replace(called, **by_code)),
        recommended=("1010",),
        is_agentic=is_agentic,
        totals=plain.totals if is_agentic else replace(plain.totals, llm_calls=0, code_calls=1),
    )


def outcome_of(problem_id: str, *, is_success: bool) -> OutcomeScore:
    plain = outcome(is_success)
    (slot,) = plain.slots
    slot = replace(slot, recommended_id="1010", price=Axis(int(is_success), 1))
    share_e4 = 10_000 if is_success else 5_000
    bucket = BUCKETS[int(problem_id[-2:]) % 3]
    return replace(plain, bucket=bucket, slots=(slot,), rule_e4=share_e4, reward_e4=share_e4 * is_success)


def explain(record: model.EvaluationRecord, _: str, words: Words = PLAIN) -> Explanation:
    """What the problem asked, in place of a batch's answers. What was solved recommended another product that counts
    as well."""
    is_met = isinstance(record.outcome, OutcomeScore) and record.outcome.is_success
    found = "480 PHP" if is_met else "620 PHP"
    asked = (
        Constraint(slot=1, axis="title", asked="Blue cotton shirt", found=words.product, is_met=True),
        Constraint(slot=1, axis="price", asked="at most 500 PHP", found=found, is_met=is_met),
    )
    accepted = tuple(
        AcceptedProduct(slot=1, product_id=name, title=words.product, price="480 PHP", is_answer=name == ANSWER)
        for name in (ANSWER, "1010")[: 1 + is_met]
    )
    return Explanation(constraints=asked, accepted=accepted)


def batch_of(race_id: str) -> Batch:
    return Batch(
        batch_sha256=text_hash(f"batch {race_id}"),
        partition_sha256=text_hash("partition"),
        problems=tuple(SealedProblem(problem_id=f"{race_id}-p{n:02}") for n in range(PROBLEMS)),
    )


def drawn_of(race_id: str) -> tuple[str, ...]:
    seed = race_seed(race_id, batch_of(race_id).batch_sha256, BEACON)
    return draw_problems(seed, (one.problem_id for one in batch_of(race_id).problems), DRAWN)


class Site:
    """Writes the log of a site and knows what stands where."""

    def __init__(self, author: Author, words: Words = PLAIN) -> None:
        self.author, self.words, self.size = author, words, 0
        self._most = len(NAMES)

    def field(self) -> tuple[model.Candidate, ...]:
        return tuple(
            model.Candidate(subject=subject(n, self.words), qualifying_score_e4=5_000) for n in range(self._most)
        )

    def run(
        self, race_number: int, agents: Sequence[int], problem_ids: Sequence[str]
    ) -> tuple[list[LoggedRecord[model.EvaluationRecord]], list[LoggedRecord[model.VerdictRecord]]]:
        """Episodes of a race, written; and as a settlement counts them."""
        race_id, rng = RACES[race_number], random.Random(race_number)
        self.author.turn_clock(self.closes_ms(race_number) + HOUR_MS)
        payloads: list[model.Payload] = []
        bodies: list[model.StoredBody] = []
        evaluations, verdicts = [], []
        conditions = replace(CONDITIONS, policy_sha256=RULES.policy_sha256, sandbox=LEVEL)
        for number, (problem, problem_id) in ((n, each) for n in agents for each in enumerate(problem_ids)):
            skill = 0.95 - 0.2 * number
            is_agentic = rng.random() < 0.9 - 0.1 * number
            made = body_of(number, problem_id, self.words, is_agentic=is_agentic)
            stored, is_success = encode_body(made), rng.random() < skill
            at = model.Context(
                stage="race", race_id=race_id, problem_id=problem_id, batch_sha256=batch_of(race_id).batch_sha256
            )
            about = {"subject": subject(number, self.words), "context": at}
            (attempt, plain, verdict), _ = episode(problem, attempt_id=f"{race_id}-{number}-{problem}:1")
            evaluation = replace(
                plain,
                conditions=conditions,
                body_sha256=stored.body_sha256,
                is_agentic=is_agentic,
                totals=made.totals,
                outcome=outcome_of(problem_id, is_success=is_success),
                **about,
            )
            seq = self.size + len(payloads) + 2
            payloads += [replace(attempt, body_sha256=stored.body_sha256, **about), evaluation]
            bodies.append(stored)
            evaluations.append(self._counted(LoggedRecord[model.EvaluationRecord], seq, evaluation))
            if is_success:
                quality_e4 = (9_000, 8_000, 6_000)[(number + problem) % 3] if is_agentic else 3_000
                quote = Citation(span=2, quote=self.words.said[:60], gate="data_cited")
                (opinion,) = verdict.verdict.opinions
                opinion = replace(opinion, quality_e4=quality_e4, citations=(quote,), explanation=self.words.judged)
                given = replace(
                    verdict.verdict,
                    body_sha256=stored.body_sha256,
                    rubric_id=RULES.rubric.rubric_id,
                    prompt_sha256=RULES.rubric.prompt_sha256,
                    quality_e4=quality_e4,
                    coefficient_e4=coefficient_e4(quality_e4),
                    opinions=(opinion,),
                )
                payloads.append(said := model.VerdictRecord(verdict=given, **about))
                verdicts.append(self._counted(LoggedRecord[model.VerdictRecord], seq + 1, said))
        self.size = self.author.append(payloads, bodies)
        return evaluations, verdicts

    def _counted(self, kind: type, seq: int, record: model.Payload):
        name = self.author.signer.hotkey
        return kind(validator=name, seq=seq, content_sha256=text_hash(f"{name} {seq}"), record=record)

    def settle(
        self,
        race_number: int,
        incumbent: model.Top | None,
        history: Sequence[model.SettlementRecord],
        *,
        is_drawn: bool = True,
    ) -> model.SettlementRecord:
        race_id, field, validators = RACES[race_number], self.field(), (self.author.signer.hotkey,)
        evaluations, verdicts = self.run(race_number, range(self._most), drawn_of(race_id)) if is_drawn else ([], [])
        of_problem = {one.record.context.problem_id: one for one in evaluations}
        for name, one in of_problem.items():  # the control agent fails all, and so has a result on each
            failed = outcome_of(name, is_success=False)
            about = {"subject": control_subject(RULES.race), "attempt_id": f"control-{name}:1", "outcome": failed}
            seen = replace(one.record, **about)
            evaluations.append(self._counted(LoggedRecord[model.EvaluationRecord], one.seq + 100_000, seen))
        made = inputs_of(
            race_id,
            RULES,
            batch_of(race_id),
            field,
            validators,
            evaluations=tuple(evaluations),
            verdicts=tuple(verdicts),
        )
        inputs = changed(
            made,
            closing_block=1_000 * race_number + 50,
            closes_ms=self.closes_ms(race_number),
            settling_block=1_000 * race_number + 400,
            beacon=BEACON if is_drawn else None,
            incumbent=incumbent,
            history=tuple(history),
        )
        record = settle(inputs)
        self.size = self.author.append([record])
        return record

    def closes_ms(self, race_number: int) -> int:
        return NOW_MS - (len(RACES) - 1 - race_number) * 7 * DAY_MS - DAY_MS // 2

    def release(self, race_number: int) -> None:
        race_id, batch = RACES[race_number], batch_of(RACES[race_number])
        opens_ms = NOW_MS + DAY_MS if race_id == EMBARGOED else self.closes_ms(race_number) + DAY_MS
        problems = tuple(
            model.ReleasedProblem(
                problem_id=one.problem_id,
                pool="eval" if one.problem_id == drawn_of(race_id)[-1] else "train",
                cluster_id=text_hash(f"c{n // 2}")[:16],
            )
            for n, one in enumerate(batch.problems)
        )
        about = {"race_id": race_id, "batch_sha256": batch.batch_sha256, "salt": "99" * 32, "opens_ms": opens_ms}
        self.size = self.author.append([model.ReleaseRecord(problems=problems, **about)])

    def fill(self, agents: int = 0) -> None:
        """Write everything; with `agents`, of the first so many agents of each race alone."""
        self._most = agents or len(NAMES)
        top, history, events = None, [], {}
        for number in range(3):
            before, record = top, self.settle(number, top, history)
            history.append(record)
            top = machine.promoted(record, self.closes_ms(number)) if record.is_promotion else top
            self.release(number)
            events[RACES[number]] = self.events(number, before, record)
        events[VOID] = self.events(3, top, self.settle(3, top, history, is_drawn=False))
        self.run(4, range(2), drawn_of(RUNNING)[:4])
        events[RUNNING] = self.events(4, top, None)
        asyncio.run(self._store(events))

    def events(
        self, race_number: int, top: model.Top | None, settlement: model.SettlementRecord | None
    ) -> list[machine.Event]:
        """The stream of a race until now."""
        race_id, closes_ms = RACES[race_number], self.closes_ms(race_number)
        found: list[machine.Event] = [
            machine.open_race(race_id, RULES, batch_of(race_id), closes_ms - DAY_MS, closes_ms=closes_ms),
            machine.RaceClosed(closing_block=1_050, beacon_network=BEACON.network, beacon_round=BEACON.round),
            machine.FieldFixed(field=self.field(), validators=(self.author.signer.hotkey,), incumbent=top),
        ]
        if settlement is None or settlement.drawn:
            drawn = drawn_of(race_id)
            found.append(machine.ProblemsDrawn(beacon=BEACON, seed="ab" * 32, drawn=drawn, drawn_ms=closes_ms + 60_000))
            found.append(machine.ItemsEnqueued(items=80))
        if settlement is not None:
            found += [
                machine.SettlementDue(settling_block=1_400, why="all done"),
                machine.RaceSettled(settlement=settlement),
            ]
        if settlement is not None and settlement.drawn:
            found.append(machine.BatchReleased(batch_sha256=batch_of(race_id).batch_sha256))
        return found

    async def _store(self, events: dict[str, list[machine.Event]]) -> None:
        signer = self.author.signer
        store = await PostgresStore.open(self.author.dsn, signer.hotkey)
        for race_id, stream in events.items():
            for index, event in enumerate(stream):
                await store.put_event(machine.stream_of(race_id), index, machine.encode_event(event))
        found = finding("id-table", 2, self.words.finding)
        report = make_report([found], rules_version="gate/3", source_sha256="1", inputs_sha256="2")
        text = msgspec.json.encode(report).decode()
        for number, name in enumerate(self.words.names):
            who, state = subject(number, self.words), "qualified" if number < 3 else "review"
            stored = StoredSubmission(subject=who, name=name, state=state, report=text)
            await store.put_submission(stored, self.words.source)
        leaves = [leaf async for leaf in store.leaves(signer.hotkey)]
        note = signed_note(signer, leaves)
        signed = model.StoredCheckpoint(validator=signer.hotkey, size=len(leaves), note=note, signed_ms=NOW_MS)
        await store.put_checkpoint(signed)
        await store.close()


ASKED = drawn_of(PUBLISHED[1])[0]


def traces_of(http: httpx2.Client, problem_id: str) -> list[str]:
    """The traces of a problem of the second race, as `VALIDATOR/SEQ`, in log order."""
    rows = http.get(f"/v1/races/{PUBLISHED[1]}/trajectories", params={"problem": problem_id}).json()["items"]
    return [row["href"].removeprefix("/v1/trajectories/").partition("?")[0] for row in rows]


def every_page(http: httpx2.Client) -> dict[str, str]:
    """Name of each page and state, and its path."""
    first, second = traces_of(http, ASKED)[:2]
    return {
        "leaderboard": "/",
        "races": "/races",
        "race": f"/races/{PUBLISHED[1]}",
        "race-under-embargo": f"/races/{EMBARGOED}",
        "race-void": f"/races/{VOID}",
        "race-running": f"/races/{RUNNING}",
        "problem": f"/races/{PUBLISHED[1]}/problems/{ASKED}",
        "problem-sealed": f"/races/{RUNNING}/problems/{drawn_of(RUNNING)[0]}",
        "agents": "/agents",
        "agent": f"/agents/{agent_id(0)}",
        "agent-sealed": f"/agents/{agent_id(3)}",
        "trace": f"/traces/{first}",
        "compare": f"/traces/{first}?with={second}",
        "firehose": "/firehose",
        "validators": "/validators",
        "verify": "/verify",
        "rule": "/rule",
        "api": "/api",
        "error": "/races/race-none",
    }
