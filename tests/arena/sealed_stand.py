"""A log with one race under way, one under embargo and one that is open, each full of marked secrets."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from arena.gate.rules import Finding, GateReport
from arena.records.body import encode_body
from arena.records.model import EvaluationRecord, Payload, StoredBody, VerdictRecord
from arena.records.port import StoredSubmission
from arena.store.postgres import PostgresStore
from harness.trace import Completion, ToolCall
from tests.arena.log_stand import body, episode, release, settlement, subject
from tests.arena.tail_stand import Author

OPENS_MS = 2_000_000_000_000
WINNER, LOSER = "a1", "b2"
RUNNING, SEALED, OPEN = "race-running", "race-sealed", "race-open"
RACES, AGENTS = (RUNNING, SEALED, OPEN), (WINNER * 32, LOSER * 32)
SCORE = 987_654_321  # of the race under way: no other figure looks like it


class Secrets(NamedTuple):
    """What nobody outside may read, by when it opens."""

    never: tuple[bytes, ...]
    after: tuple[bytes, ...]  # the embargo
    named: tuple[bytes, ...]  # after the embargo, by whoever asks for pool `eval`
    always: tuple[bytes, ...]  # public from the start: a crawl that does not meet these sees nothing


SECRETS = Secrets(
    never=(
        b"SOURCE-OF-THE-LOSER",
        b"FINDING-OF-THE-LOSER",
        b"p-of-race-running",
        b"TRACE-OF-race-running",
        b"VERDICT-OF-race-running",
        b"SEED-OF-race-running",
        str(SCORE).encode(),
    ),
    after=(b"SOURCE-OF-THE-WINNER", b"FINDING-OF-THE-WINNER", b"TRACE-OF-race-sealed", b"VERDICT-OF-race-sealed"),
    named=(b"TRACE-OF-eval-race-sealed",),
    always=(b"TRACE-OF-race-open", b"SEED-OF-race-sealed"),
)


def source_of(name: str, more: str = "") -> str:
    """The file of the "WINNER" or the "LOSER"."""
    return f"# SOURCE-OF-THE-{name}{more}\ndef agent_main(problem):\n    return []\n"


def marked_episode(
    problem: int, race_id: str, agent: str, mark: str, more: str = ""
) -> tuple[list[Payload], StoredBody]:
    """An episode whose words, results and verdict hold a mark and what follows it."""
    payloads, _ = episode(problem, race_id=race_id, agent=agent)
    plain = body(problem)
    events = tuple(
        replace(each, content=f"TRACE-OF-{mark}{more} {agent}")
        if isinstance(each, Completion)
        else replace(each, result=f"TRACE-OF-{mark}{more} {agent}")
        for each in plain.events
        if isinstance(each, Completion | ToolCall)
    )
    stored = encode_body(replace(plain, events=events, query=f"TRACE-OF-{mark}{more}"))
    return [_marked(each, stored.body_sha256, mark, more) for each in payloads], stored


def _marked(payload: Payload, body_sha256: str, mark: str, more: str) -> Payload:
    if isinstance(payload, VerdictRecord):
        (opinion,) = payload.verdict.opinions
        opinion = replace(opinion, explanation=f"VERDICT-OF-{mark}{more}")
        payload = replace(payload, verdict=replace(payload.verdict, body_sha256=body_sha256, opinions=(opinion,)))
    else:
        payload = replace(payload, body_sha256=body_sha256)
    if mark == RUNNING and not isinstance(payload, EvaluationRecord):
        return replace(payload, context=replace(payload.context, problem_id=f"p-of-{mark}"))
    return payload


def fill(author: Author, more: str = "") -> int:
    """Write it all; returns the log's size. `more` stands behind every word that is not public before the embargo
    ends: two logs that differ in it look alike until then."""
    for race_id in RACES:
        problems = {1: race_id, 2: f"eval-{race_id}"}
        made = [
            marked_episode(problem, race_id, agent, mark, "" if race_id == OPEN else more)
            for problem, mark in problems.items()
            for agent in (WINNER, LOSER)
        ]
        author.append([each for payloads, _ in made for each in payloads], [stored for _, stored in made])
        record = settlement(race_id)
        (first,) = record.standings
        second = replace(first, rank=2, agent_version_id=LOSER * 32, race_score_e4=8_000)
        figure = SCORE + len(more) if race_id == RUNNING else first.product_of_means_e4
        record = replace(
            record,
            seed=f"SEED-OF-{race_id}{more if race_id == RUNNING else ''}",
            drawn=(f"p-of-{race_id}",),
            standings=(replace(first, product_of_means_e4=figure), second),
            is_promotion=race_id == SEALED,
        )
        author.append([record])
    sealed, opened = release(SEALED, (1, 2)), release(OPEN, (1, 2))
    pools = ("train", "eval")
    for record, opens_ms in ((sealed, OPENS_MS), (opened, 0)):
        problems_of = tuple(replace(one, pool=pool) for one, pool in zip(record.problems, pools, strict=True))
        size = author.append([replace(record, problems=problems_of, opens_ms=opens_ms)])
    asyncio.run(_submit(author, more))
    return size


async def _submit(author: Author, more: str) -> None:
    store = await PostgresStore.open(author.dsn, author.signer.hotkey)
    try:
        for agent, name in ((WINNER, "WINNER"), (LOSER, "LOSER")):
            found = Finding(
                rule="similarity", outcome="review", severity="integrity", line=3, detail=f"FINDING-OF-THE-{name}{more}"
            )
            report = GateReport(
                outcome="review", findings=(found,), rules_version="gate/3", source_sha256="1", inputs_sha256="2"
            )
            stored = StoredSubmission(
                subject=subject(agent),
                name=name.lower(),
                state="qualified",
                report=msgspec.json.encode(report).decode(),
            )
            await store.put_submission(stored, source_of(name, more))
    finally:
        await store.close()
