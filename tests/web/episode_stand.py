"""The episodes of the site that the tests fill: its races, agents, words and traces."""

from __future__ import annotations

import json
import random
from typing import NamedTuple

from msgspec.structs import replace

from arena.bank.batch import AcceptedProduct, Batch, Explained, SealedProblem
from arena.policies import DEMO
from arena.race.draw import draw_problems, race_seed
from arena.records.model import EvaluationRecord, StoredBody, Subject
from foundation.canonical import text_hash
from harness.trace import Completion, EmittedCall, EvaluationBody, Surfaced, ToolCall, Totals
from judge.rubric import coefficient_e4
from judge.verdict import Citation, Opinion, Verdict
from problems.explanation import Constraint, ConstraintAxis
from problems.outcome import Axis, OutcomeScore, SlotScore
from tests.arena.race_stand import BEACON

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW_MS = 1_790_000_000_000 + 30 * DAY_MS
NAMES = (
    "lamp-finder",
    "budget-first",
    "careful-shopper",
    "voucher-hound",
    "two-step",
    "title-matcher",
    "plain",
    "hasty",
)
SECOND_VERSION = 6  # of the miner of agent 2
PROBLEMS = 12
ANSWER = "2020"
DRAWN = 10
RULES = replace(DEMO, race=replace(DEMO.race, problems=DRAWN, batch_problems=PROBLEMS, control_sha256=""))
PUBLISHED, EMBARGOED, VOID, RUNNING = ("race-000001", "race-000002"), "race-000003", "race-000004", "race-000005"
RACES = (*PUBLISHED, EMBARGOED, VOID, RUNNING)
BUCKETS = ("product", "shop", "voucher")
ASKED = (
    "a blue cotton shirt under 500 pesos",
    "two lamps from one official store",
    "socks and a belt within a voucher of 1000",
)


class Words(NamedTuple):
    """Every foreign text of the site, so that it can be filled with hostile ones."""

    names: tuple[str, ...] = NAMES
    query: str = ""
    said: str = "The first lamp costs 480 pesos and ships free, so it fits the budget."
    product: str = "Blue cotton shirt, official store"
    judged: str = "It compares the price with the budget before it chooses."
    source: str = "def agent_main(problem):\n    return []\n"
    finding: str = "a constant that looks like a product id"
    long: str = ""  # said by one agent on one problem of a race


PLAIN = Words()


def agent_id(number: int) -> str:
    return f"{number + 16:02x}" * 32


def subject(number: int, words: Words) -> Subject:
    return Subject(
        agent_version_id=agent_id(number),
        miner_hotkey=f"5Miner{'ABCDEFGHJK'[2 if number == SECOND_VERSION else number]}{'x' * 41}",
        agent_sha256=text_hash(words.source + str(number)),
        commitment_block=100 + number,
    )


def body_of(number: int, problem_id: str, words: Words, rng: random.Random, *, is_agentic: bool) -> EvaluationBody:
    """A trace of some turns; the longer, the more the agent searches."""
    place = int(problem_id[-2:])
    turns = 1 + rng.randrange(2 + number % 3)
    events: list[Completion | ToolCall] = []
    said = words.said + (words.long if number == 0 and problem_id == drawn_of(problem_id[:-4])[0] else "")
    for step in range(1, turns + 1):
        found = [
            {
                "product_id": str(1000 + step * 10 + n),
                "title": f"{words.product} {n}",
                "price": 480 + n,
                "service": ["COD"],
            }
            for n in range(3)
        ]
        call = EmittedCall(call_id=f"c{step}", name="find_product", arguments=json.dumps({"q": f"shirt {step}"}))
        events.append(
            Completion(
                step=step,
                model="scripted-expert" if number % 2 else "scripted-careful",
                request=(0,),
                request_sha256="33",
                content=said if step == turns else "I search first.",
                reasoning="The buyer asks for cotton." if step == 1 else "",
                calls=(call,) if is_agentic else (),
                prompt_tokens=400 * step,
                completion_tokens=60,
                response="{}",
            )
        )
        events.append(
            ToolCall(
                index=step - 1,
                step=step,
                name=("find_product", "view_product_information", "calculate_transaction")[(step - 1) % 3],
                arguments=call.arguments,
                emitter="llm" if is_agentic else "code",
                emitted_call_id=f"c{step}" if is_agentic else "",
                result=json.dumps(found),
                surfaced=(Surfaced(product_id="1010", rank=1),),
            )
        )
    read, written = sum(400 * step for step in range(1, turns + 1)), 60 * turns
    return EvaluationBody(
        policy_sha256="e5",
        problem_id=problem_id,
        bucket=BUCKETS[place % 3],
        query=words.query or ASKED[place % 3],
        agent_sha256=subject(number, words).agent_sha256,
        tool_profile="sn15",
        tools_sha256="11",
        catalogue_sha256="22",
        messages=(json.dumps({"role": "user", "content": words.query or ASKED[place % 3]}),),
        events=tuple(events),
        stop="terminated",
        recommended=("1010",),
        is_agentic=is_agentic,
        totals=Totals(
            steps=turns,
            tool_calls=turns,
            prompt_tokens=read,
            completion_tokens=written,
            cost_micro_usd=read // 4,
            llm_calls=turns if is_agentic else 0,
            code_calls=0 if is_agentic else turns,
        ),
    )


def outcome_of(problem_id: str, rng: random.Random, *, is_success: bool) -> OutcomeScore:
    met, half = Axis(1, 1), Axis(1, 2)
    price = met if is_success or rng.random() < 0.4 else Axis(0, 1)
    slot = SlotScore(
        recommended_id="1010",
        is_found=True,
        is_answer=is_success,
        title=met,
        price=price,
        service=Axis(),
        sku=met,
        attribute=met if is_success else half,
        rule_hits=2 if is_success else rng.randrange(2),
        rule_total=2,
    )
    return OutcomeScore(
        titles="lexical/1",
        bucket=BUCKETS[int(problem_id[-2:]) % 3],
        slots=(slot,),
        is_success=is_success,
        is_gt_exact=is_success,
        rule_e4=10_000 if is_success else 5_000 * rng.randrange(2),
        reward_e4=10_000 if is_success else 0,
    )


def verdict_on(stored: StoredBody, body: EvaluationBody, words: Words, quality_e4: int) -> Verdict:
    last = max(n for n, event in enumerate(body.events) if isinstance(event, Completion))
    quote = Citation(span=2, quote="The buyer asks for cotton.", gate="inference_present")
    if not last:
        quote = Citation(span=2, quote=words.said[:60], gate="data_cited")
    return Verdict(
        body_sha256=stored.body_sha256,
        rubric_id=RULES.rubric.rubric_id,
        prompt_sha256=RULES.rubric.prompt_sha256,
        quality_e4=quality_e4,
        coefficient_e4=coefficient_e4(quality_e4),
        spread_e4=0,
        opinions=(
            Opinion(
                model="scripted-judge",
                quality_e4=quality_e4,
                citations=(quote,),
                explanation=words.judged,
                attempts=1,
                reply_sha256="55",
            ),
        ),
    )


def explain(record: EvaluationRecord, _: str, words: Words = PLAIN) -> Explained:
    """What the problem asked, as many constraints of each axis as the outcome counts; in place of a batch's answers.
    What was solved recommended the answer, or another product that counts as well."""
    if not isinstance(record.outcome, OutcomeScore):
        return Explained()
    values: dict[ConstraintAxis, tuple[str, str, str]] = {
        "title": ("Blue cotton shirt", words.product, words.product),
        "price": ("at most 500 PHP", "480 PHP", "620 PHP"),
        "sku": ("size: L", "size: L, M", "no size"),
        "attribute": ("material: cotton", "material: cotton", "material: polyester"),
    }
    constraints = tuple(
        Constraint(
            slot=slot, axis=axis, asked=asked, found=has if place < counted.hits else lacks, is_met=place < counted.hits
        )
        for slot, scored in enumerate(record.outcome.slots, 1)
        for axis, (asked, has, lacks) in values.items()
        for counted in (getattr(scored, axis),)
        for place in range(counted.total)
    )
    ids = {ANSWER: True, "1010": False} if record.outcome.is_success else {ANSWER: True}
    accepted = tuple(
        AcceptedProduct(slot=1, product_id=name, title=words.product, price="480 PHP", is_answer=is_answer)
        for name, is_answer in ids.items()
    )
    return Explained(constraints=constraints, accepted=accepted)


def batch_of(race_id: str) -> Batch:
    return Batch(
        batch_sha256=text_hash(f"batch {race_id}"),
        partition_sha256=text_hash("partition"),
        problems=tuple(SealedProblem(problem_id=f"{race_id}-p{n:02}") for n in range(PROBLEMS)),
    )


def drawn_of(race_id: str) -> tuple[str, ...]:
    seed = race_seed(race_id, batch_of(race_id).batch_sha256, BEACON)
    return draw_problems(seed, (one.problem_id for one in batch_of(race_id).problems), DRAWN)
