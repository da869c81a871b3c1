"""Values the log tests are made of: episodes with their records, of any size, and work items."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence

import msgspec

from arena.records import model
from arena.records.body import decode_content, encode_body
from arena.records.log import LogStart, LogWalk, first_head, head_after, message_of, sign_checkpoint
from arena.records.port import HeadMovedError, StoredSubmission, WorkItem
from foundation.errors import ArenaError
from harness.sandbox.port import SandboxLevel
from harness.trace import Completion, EmittedCall, EvaluationBody, Surfaced, ToolCall, Totals
from judge.verdict import Citation, Opinion, Verdict
from problems.model import Axis, OutcomeScore, SlotScore

START_MS = 1_790_000_000_000
HOST = model.HostFacts(machine="test", cores=2)
WORDS = ("cotton", "shirt", "blue", "large", "official", "store", "shipping", "rating", "compare", "budget", "voucher")
SUBJECT = model.Subject(
    agent_version_id="a1" * 32,
    miner_hotkey="5miner",
    agent_sha256="b2" * 32,
    commitment_block=7,
    commitment_sha256="c3",
)
LEVEL = SandboxLevel(
    name="bubblewrap", layers=("user-namespace",), guest_sha256="d4", python_version="3.11", may_race=True
)
CONDITIONS = model.Conditions(policy_sha256="e5", scoring_pipeline="scoring/1", code_commit="f6", sandbox=LEVEL)


def signed_bytes(signer, content: bytes, head: model.Head) -> model.SignedRecord:
    """A record as its validator would sign it behind a head, whatever it holds."""
    sha256 = hashlib.sha256(content).hexdigest()
    fields = {"validator": signer.hotkey, "seq": head.seq + 1, "prev": head.hash, "content_sha256": sha256}
    unsigned = model.SignedRecord(**fields, signature="", content=content)
    return msgspec.structs.replace(unsigned, signature=signer.sign(message_of(unsigned)).hex())


def walked(validator: str, records: Iterable[model.Envelope]) -> LogWalk:
    walk = LogWalk(LogStart(validator=validator))
    for record in records:
        walk.take(record)
    return walk


def signed_note(signer, records: Iterable[model.Envelope]) -> str:
    """The signed checkpoint of a log of these records."""
    return sign_checkpoint(walked(signer.hotkey, records).checkpoint, signer)


def subject(agent: str = "a1") -> model.Subject:
    return model.Subject(agent_version_id=agent * 32, miner_hotkey="5miner", agent_sha256="b2" * 32)


def context(problem: int, race_id: str = "r1") -> model.Context:
    return model.Context(stage="race", race_id=race_id, problem_id=f"p{problem:04d}")


def item(problem: int, race_id: str, stage: str = "race", agent: str = "a1") -> WorkItem:
    about = model.Context(stage=stage, race_id=race_id, problem_id=f"p{problem:04d}")
    return WorkItem(item_id=f"{race_id}-{stage}-{agent}-{problem}", subject=subject(agent), context=about)


def body(problem: int, result_bytes: int = 200) -> EvaluationBody:
    """An episode of one search and one recommendation, with about `result_bytes` of search results per turn."""
    rng = random.Random(problem)
    text = " ".join(f"{rng.choice(WORDS)} {rng.randrange(10**6)}" for _ in range(result_bytes // 14)) + " ✓"
    call = EmittedCall(call_id="c1", name="find_product", arguments='{"q":"shirt"}')
    return EvaluationBody(
        policy_sha256="e5",
        problem_id=f"p{problem:04d}",
        bucket="product",
        query="a blue cotton shirt",
        agent_sha256="b2" * 32,
        tool_profile="sn15",
        tools_sha256="11",
        catalogue_sha256="22",
        messages=('{"role":"user","content":"a blue cotton shirt"}',),
        events=(
            Completion(
                step=1,
                model="scripted",
                request=(0,),
                request_sha256="33",
                content="I search first.",
                calls=(call,),
                prompt_tokens=10,
                completion_tokens=5,
                response='{"role":"assistant"}',
            ),
            ToolCall(
                index=0,
                step=1,
                name="find_product",
                arguments='{"q":"shirt"}',
                emitter="llm",
                emitted_call_id="c1",
                result=text,
                surfaced=(Surfaced(product_id="17", rank=1),),
            ),
        ),
        stop="terminated",
        recommended=("17",),
        is_agentic=True,
        totals=Totals(steps=1, tool_calls=1, prompt_tokens=10, completion_tokens=5, llm_calls=1),
    )


def outcome(is_success: bool = True) -> OutcomeScore:
    met = Axis(1, 1)
    slot = SlotScore(
        recommended_id="17",
        is_found=True,
        is_answer=is_success,
        title=met,
        price=met,
        service=Axis(),
        sku=met,
        attribute=Axis(1, 2),
        rule_hits=1,
        rule_total=1,
    )
    return OutcomeScore(
        titles="lexical/1",
        bucket="product",
        slots=(slot,),
        is_success=is_success,
        is_gt_exact=is_success,
        rule_e4=10_000,
        reward_e4=10_000,
    )


def episode(
    problem: int, *, race_id: str = "r1", agent: str = "a1", attempt_id: str = "", result_bytes: int = 200
) -> tuple[list[model.Payload], model.StoredBody]:
    """What one finished episode appends: attempt, evaluation, verdict, and the body they name."""
    stored = encode_body(body(problem, result_bytes))
    about = {"subject": subject(agent), "context": context(problem, race_id)}
    attempt_id = attempt_id or f"{race_id}-{agent}-{problem}:1"
    verdict = Verdict(
        body_sha256=stored.body_sha256,
        rubric_id="reasoning/1",
        prompt_sha256="44",
        quality_e4=7_000,
        coefficient_e4=9_125,
        spread_e4=0,
        opinions=(
            Opinion(
                model="scripted",
                quality_e4=7_000,
                citations=(Citation(span=1, quote="I search first.", gate="inference_present"),),
                explanation="It searches before it answers.",
                attempts=1,
                reply_sha256="55",
            ),
        ),
    )
    return [
        model.AttemptRecord(attempt_id=attempt_id, ended="evaluated", body_sha256=stored.body_sha256, **about),
        model.EvaluationRecord(
            attempt_id=attempt_id,
            conditions=CONDITIONS,
            body_sha256=stored.body_sha256,
            stop="terminated",
            failure=None,
            is_agentic=True,
            totals=body(problem, 0).totals,
            outcome=outcome(),
            **about,
        ),
        model.VerdictRecord(verdict=verdict, **about),
    ], stored


def attempt(problem: int, number: int = 1, ended: str = "abandoned") -> model.AttemptRecord:
    return model.AttemptRecord(
        attempt_id=f"p{problem}:{number}", subject=SUBJECT, context=context(problem), ended=ended
    )


def gate(number: int, decided_by: str = "gate", outcome: str = "review") -> model.GateRecord:
    said = dict(decided_by=decided_by, outcome=outcome, hold="heuristic" if outcome == "review" else "")
    hashes = dict(knowledge_sha256="0a" * 32, neighbours_sha256=f"{number:064x}") if decided_by == "gate" else {}
    rules = "gate/1" if decided_by == "gate" else ""
    return model.GateRecord(subject=SUBJECT, policy_sha256="e5", rules_version=rules, **said, **hashes)


def gate_word(who: model.Subject, policy_sha256: str, outcome: str = "accept") -> model.GateRecord:
    """What a validator says of an agent that its gate let through, or not."""
    severity = "integrity" if outcome == "reject" else ""
    return model.GateRecord(
        subject=who, policy_sha256=policy_sha256, decided_by="gate", outcome=outcome, severity=severity
    )


def settlement(race_id: str = "r1") -> model.SettlementRecord:
    row = model.Standing(
        rank=1,
        agent_version_id="a1" * 32,
        miner_hotkey="5miner",
        race_score_e4=9_125,
        low_e4=9_000,
        high_e4=9_200,
        success_e4=10_000,
        mean_quality_e4=7_000,
        product_of_means_e4=9_125,
        agentic_share_e4=10_000,
        problems=1,
        missing=0,
    )
    return model.SettlementRecord(
        race_id=race_id,
        policy_sha256="e5",
        closing_block=10,
        settling_block=20,
        beacon_round=3,
        seed="66",
        batch_sha256="77",
        record_set_sha256="88",
        drawn=("p0001",),
        void=(),
        state="settled",
        standings=(row,),
        top_agent_version_id="a1" * 32,
        is_promotion=True,
        uids=(0, 1),
        weights_u16=(65_535, 0),
    )


def release(race_id: str = "r1", problems: Sequence[int] = (1,)) -> model.ReleaseRecord:
    released = tuple(
        model.ReleasedProblem(problem_id=f"p{problem:04d}", pool="train", cluster_id="aa") for problem in problems
    )
    return model.ReleaseRecord(race_id=race_id, batch_sha256="77", problems=released, salt="99" * 32)


class Clock:
    """A clock that moves by one millisecond each time it is read."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


def filed(record: model.SignedRecord) -> model.Entry:
    """A record as a store that files it rightly holds it."""
    try:
        filing = model.filing_of(decode_content(record.content).payload)
    except ArenaError:
        filing = None
    return model.Entry(**msgspec.structs.asdict(record), filing=filing)


class MemoryLog:
    """The part of a store a sequencer writes to, in memory; `refusals` are raised first, one per append."""

    def __init__(self, validator: str) -> None:
        self.validator = validator
        self.log: list[model.SignedRecord] = []
        self.stored: dict[str, model.BodyFrame] = {}
        self.signed: list[model.StoredCheckpoint] = []
        self.refusals, self.lost_replies = list[Exception](), list[Exception]()
        self.end = first_head(validator)
        self.submitted, self.sources = list[StoredSubmission](), dict[str, str]()  # sources by agent version id

    async def put_submission(self, submission: StoredSubmission, source: str) -> None:
        self.submitted.append(submission)
        self.sources[submission.subject.agent_version_id] = source

    async def submissions(self, states=(), *, miner_hotkey="") -> list[StoredSubmission]:
        return [row for row in self.submitted if miner_hotkey in ("", row.subject.miner_hotkey)]

    async def source(self, agent_version_id: str) -> str | None:
        return self.sources.get(agent_version_id)

    async def head(self, validator=None):
        return self.end

    async def append(self, records: Sequence[model.SignedRecord], bodies: Sequence[model.BodyFrame] = (), finish=None):
        if self.refusals:
            raise self.refusals.pop(0)
        if records[0].prev != self.end.hash or records[0].seq != self.end.seq + 1:
            raise HeadMovedError("V2022")
        self.log += records
        self.stored |= {body.body_sha256: body for body in bodies}
        self.end = head_after(records[-1])
        if self.lost_replies:
            raise self.lost_replies.pop(0)
        return self.end

    async def records(self, validator=None, *, after_seq=0, kinds=(), race_id=None, page=500):
        for record in [one for one in self.log if one.seq > after_seq]:
            if kinds or race_id is not None:
                filing = model.filing_of(decode_content(record.content).payload)
                if (kinds and filing.kind not in kinds) or race_id not in (None, filing.race_id):
                    continue
            yield record

    async def reopen(self):
        return self

    async def every_seq(self, validator, step, after_seq):
        return [record.seq for record in self.log if record.seq > after_seq][step - 1 :: step]

    async def filed_records(self, validator, after_seq, to_seq):
        async for record in self.leaves(validator, after_seq=after_seq, to_seq=to_seq):
            yield filed(record)

    async def frames(self, names: Sequence[str], validator=None) -> list[model.BodyFrame]:
        return [self.stored[name] for name in names if name in self.stored]

    async def validators(self) -> list[str]:
        return [self.validator]

    async def leaves(self, validator, *, after_seq=0, to_seq=None):
        for record in self.log:
            if after_seq < record.seq <= (to_seq if to_seq is not None else record.seq):
                yield record

    async def checkpoints(self, validator=None, *, after_size=0) -> list[model.StoredCheckpoint]:
        return [point for point in self.signed if point.size > after_size]
