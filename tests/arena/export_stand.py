"""A log in memory that an export reads, ways to fill it and to look at what came out; and a season of agents that won,
will open, never won or leak, under a policy that prices some of their models."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from arena.chain.keys import verify
from arena.export.exporter import export_records
from arena.export.files import read_rows
from arena.export.model import Cursor, Filters, LogRow, Manifest, Request
from arena.policies import POLICIES
from arena.policy import Policy
from arena.race.schedule import opening_ms
from arena.records import model as records
from arena.records.body import decode_content, encode_body
from arena.records.port import StoredSubmission
from arena.records.sequencer import Sequencer
from foundation.canonical import canonical_bytes, text_hash
from harness.limits import ModelPrice, completion_cost
from harness.trace import Totals
from tests.arena.log_stand import (
    HOST,
    START_MS,
    Clock,
    MemoryLog,
    body,
    episode,
    outcome,
    release,
    settlement,
    signed_note,
    walked,
)
from tests.keys import generate_signer

replace = msgspec.structs.replace
SECRET = "sk-or-v1-" + hashlib.sha256(b"a key that was never one").hexdigest()
NOW_MS = START_MS + 86_400_000


class ExportLog(MemoryLog):
    """The part of a store that exports read, and the signer of its log."""

    def __init__(self) -> None:
        self.signer = generate_signer()
        super().__init__(self.signer.hotkey)
        self.sequencer = Sequencer(self, self.signer, Clock(), HOST)
        self.streams: dict[str, list[str]] = {}  # events of races, where a test says how they ended

    def add(self, payloads: Sequence[records.Payload], bodies: Sequence[records.StoredBody] = ()) -> None:
        asyncio.run(self.sequencer.append(payloads, bodies))

    def add_episode(self, problem: int, race_id: str = "r1", **options) -> None:
        payloads, body = episode(problem, race_id=race_id, **options)
        self.add(payloads, [body])

    def cursor_at(self, after_seq: int) -> Cursor:
        """The cursor behind a record, of an export that nothing waited for."""
        return Cursor(**msgspec.structs.asdict(walked(self.validator, self.log[:after_seq]).position()))

    def checkpoint(self) -> None:
        """Sign the log as it stands."""
        note = signed_note(self.signer, self.log)
        self.signed.append(
            records.StoredCheckpoint(validator=self.validator, size=len(self.log), note=note, signed_ms=1)
        )

    async def records(self, validator=None, *, after_seq=0, kinds=(), race_id=None):
        for record in list(self.log):
            if record.seq > after_seq and (not kinds or _kind(record.content) in kinds):
                yield record

    async def events(self, stream):
        return self.streams.get(stream, [])

    async def verdicts_on(self, names, validator=None):
        found = []
        for record in self.log:
            payload = decode_content(record.content).payload if _kind(record.content) == "verdict" else None
            if isinstance(payload, records.VerdictRecord) and payload.verdict.body_sha256 in set(names):
                found.append(record)
        return found


def request_of(log: ExportLog, **fields) -> Request:
    filters = {name: fields.pop(name) for name in list(fields) if name in Filters.__struct_fields__}
    return Request(validator=log.validator, filters=Filters(**filters), **fields)


def export(
    log: ExportLog, folder: Path, *, start=None, signer=None, libraries=None, progress=None, now_ms=NOW_MS, **fields
) -> Manifest:
    return asyncio.run(
        export_records(
            log,
            request_of(log, **fields),
            folder,
            verify_signature=verify,
            software="agent-arena test",
            now_ms=now_ms,
            start=start,
            signer=signer,
            libraries=libraries,
            progress=progress,
        )
    )


def rows(folder: Path) -> list[LogRow]:
    return [row for path in sorted((folder / "log").glob("*")) for row in read_rows(path)]


def released_race(log: ExportLog, race_id: str, problems: Sequence[int] = (1, 2, 3), **options) -> None:
    """A race with an episode of each problem, and its release."""
    for problem in problems:
        log.add_episode(problem, race_id, **options)
    log.add([release(race_id, problems)])


def _kind(content: bytes) -> str:
    try:
        return str(msgspec.json.decode(content)["payload"]["kind"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return ""


def leaky_episode(log: ExportLog, query: str = f"shirts, with {SECRET}") -> None:
    """An episode whose query holds what should not be public."""
    made = encode_body(replace(body(1), query=query))
    (*others, judged), _ = episode(1)
    verdict = replace(judged.verdict, body_sha256=made.body_sha256)
    named = [replace(each, body_sha256=made.body_sha256) for each in others]
    log.add([*named, replace(judged, verdict=verdict)], [made])


DAY_MS = 86_400_000
LEAKED_KEY = "sk-ant-api03-" + "A1b2C3d4E5f6G7h8" * 6
PRICES = (
    ModelPrice(model="dear", prompt_micro_usd=10_000_000, completion_micro_usd=40_000_000),
    ModelPrice(model="cheap", prompt_micro_usd=100_000, completion_micro_usd=400_000),
)


def priced_policy(*models: str) -> Policy:
    """A policy under which these models may be asked for; two of all models have a price."""
    plain = POLICIES["paper"]
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
    "d4": f'KEY = "{LEAKED_KEY}"\n\n\ndef agent_main(problem):\n    return []\n',
}


def agent(short: str) -> records.Subject:
    return records.Subject(
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
) -> tuple[list[records.Payload], object]:
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
    under = {"body_sha256": stored.body_sha256, "prompt_sha256": policy.rubric.prompt_sha256}
    verdict = replace(verdict, verdict=replace(verdict.verdict, **under))
    return [replace(attempt, body_sha256=stored.body_sha256), evaluation, verdict], stored


def promotion(race_id: str, short: str, closes_ms: int, policy: Policy = POLICY) -> records.SettlementRecord:
    """A settlement that makes an agent the top one, and states what it was made of."""
    inputs = records.RaceInputs(
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
        host = records.HostFacts(machine="test", cores=2, episode_ms=episode_ms, agent_time_ms=300, model_ms=1_200)
        asyncio.run(self.sequencer.append(payloads, [stored], host=host))

    def win(self, race_id: str, short: str, closes_ms: int, *, is_released: bool = True) -> None:
        self.add([promotion(race_id, short, closes_ms)])
        if is_released:
            self.add([release(race_id, range(1, 10))])


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


SEASON_MS = START_MS + 7 * DAY_MS  # the third race has just closed
