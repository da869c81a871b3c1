"""A log with agents that won, will open, never won or leak, under a policy that prices some of their models."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from arena.policies import policy_by_name
from arena.policy import Policy
from arena.race.schedule import opening_ms
from arena.records.body import encode_body
from arena.records.model import HostFacts, Payload, RaceInputs, SettlementRecord, Subject
from arena.records.port import StoredSubmission
from foundation.canonical import canonical_bytes, text_hash
from harness.limits import ModelPrice, completion_cost
from harness.trace import Totals
from tests.arena.export_stand import ExportLog
from tests.arena.log_stand import START_MS, body, episode, outcome, release, settlement

DAY_MS = 86_400_000
SECRET = "sk-ant-api03-" + "A1b2C3d4E5f6G7h8" * 6
PRICES = (
    ModelPrice(model="dear", prompt_micro_usd=10_000_000, completion_micro_usd=40_000_000),
    ModelPrice(model="cheap", prompt_micro_usd=100_000, completion_micro_usd=400_000),
)


def priced_policy(*models: str) -> Policy:
    """A policy under which these models may be asked for; two of all models have a price."""
    plain = policy_by_name("paper")
    return replace(
        plain,
        limits=replace(plain.limits, prices=PRICES),
        inference=replace(plain.inference, models=models),
    )


POLICY = priced_policy("dear", "cheap", "ours")
NAMES = {"a1": "lamp-finder", "b2": "budget-first", "c3": "plain", "d4": "leaky"}
SOURCES = {
    "a1": "def agent_main(problem):\n    return []  # déjà vu\n",
    "b2": "def agent_main(problem):\n    return [1]\n",
    "c3": "def agent_main(problem):\n    return [2]\n",
    "d4": f'KEY = "{SECRET}"\n\n\ndef agent_main(problem):\n    return []\n',
}


def agent(short: str) -> Subject:
    return Subject(
        agent_version_id=short * 32,
        miner_hotkey=f"5{short}",
        agent_sha256=text_hash(SOURCES[short]),
        commitment_block=7,
    )


def raced(
    problem: int,
    race_id: str,
    short: str,
    model: str,
    *,
    asked: str = "",
    is_success: bool = True,
    is_agentic: bool = True,
    policy: Policy = POLICY,
) -> tuple[list[Payload], object]:
    """What an episode of an agent with a model appends: 1,000 tokens in, 100 out, priced as the host
    does, by the name that was asked for."""
    cost = completion_cost(policy.limits, asked or model, 1_000, 100)
    totals = Totals(steps=1, tool_calls=1, prompt_tokens=1_000, completion_tokens=100, cost_micro_usd=cost, llm_calls=1)
    plain = body(problem)
    turn = replace(plain.events[0], model=model, prompt_tokens=1_000, completion_tokens=100)
    made = replace(plain, events=(turn, *plain.events[1:]), totals=totals, is_agentic=is_agentic)
    sha256 = agent(short).agent_sha256
    stored = encode_body(replace(made, agent_sha256=sha256, policy_sha256=policy.policy_sha256))
    payloads, _ = episode(problem, race_id=race_id, agent=short)
    attempt, evaluation, verdict = (replace(payload, subject=agent(short)) for payload in payloads)
    conditions = replace(evaluation.conditions, policy_sha256=policy.policy_sha256)
    evaluation = replace(
        evaluation,
        conditions=conditions,
        body_sha256=stored.body_sha256,
        totals=totals,
        is_agentic=is_agentic,
        outcome=outcome(is_success),
    )
    verdict = replace(verdict, verdict=replace(verdict.verdict, body_sha256=stored.body_sha256))
    return [replace(attempt, body_sha256=stored.body_sha256), evaluation, verdict], stored


def promotion(race_id: str, short: str, closes_ms: int, policy: Policy = POLICY) -> SettlementRecord:
    """A settlement that makes an agent the top one, and states what it was made of."""
    inputs = RaceInputs(
        policy=canonical_bytes(policy).decode(),
        problem_ids=("p0001",),
        closes_ms=closes_ms,
        field=(),
        validators=(),
        neurons=(),
        incumbent=None,
        history=(),
        eliminated=(),
        logs=(),
        beacon_network="test",
        beacon_signature="00",
        undrawn_why="",
    )
    return replace(
        settlement(race_id),
        policy_sha256=policy.policy_sha256,
        top_agent_version_id=short * 32,
        standings=(),
        inputs=inputs,
    )


def opens_ms(closes_ms: int) -> int:
    return opening_ms(closes_ms, POLICY)


class AgentsLog(ExportLog):
    """A log whose store keeps the submissions. `race` adds a race that was released."""

    def __init__(self, shorts: Sequence[str] = tuple(NAMES)) -> None:
        super().__init__()
        for short in shorts:
            self.sources[short * 32] = SOURCES[short]
            self.submitted.append(StoredSubmission(subject=agent(short), name=NAMES[short], state="qualified"))

    def run(self, problem: int, race_id: str, short: str, model: str, *, episode_ms: int = 2_000, **options) -> None:
        payloads, stored = raced(problem, race_id, short, model, **options)
        host = HostFacts(machine="test", cores=2, episode_ms=episode_ms, agent_time_ms=300, model_ms=1_200)
        self._append(payloads, [stored], host)

    def win(self, race_id: str, short: str, closes_ms: int, *, is_released: bool = True) -> None:
        self.add([promotion(race_id, short, closes_ms)])
        if is_released:
            self.add([release(race_id, range(1, 10))])

    def _append(self, payloads, bodies, host) -> None:
        import asyncio

        asyncio.run(self.sequencer.append(payloads, bodies, host=host))


def season() -> AgentsLog:
    """Two races. In r1 `leaky` wins, in r2 `lamp-finder`, in r3 `budget-first`, a week later."""
    log = AgentsLog()
    log.run(1, "r1", "d4", "dear")
    log.run(1, "r1", "c3", "ours", is_agentic=False)
    log.win("r1", "d4", START_MS - DAY_MS)
    log.run(1, "r2", "a1", "cheap")
    log.run(2, "r2", "a1", "cheap", is_success=False)
    log.run(1, "r2", "d4", "dear")
    log.win("r2", "a1", START_MS)
    log.run(1, "r3", "b2", "cheap", episode_ms=0)
    log.run(3, "r3", "a1", "cheap")
    log.run(3, "r3", "c3", "ours", is_success=False)
    log.win("r3", "b2", START_MS + 7 * DAY_MS)
    log.checkpoint()
    return log


NOW_MS = START_MS + 7 * DAY_MS  # the third race has just closed
