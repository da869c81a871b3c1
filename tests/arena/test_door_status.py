"""Status, in every state of a submission's life: what the door says of it, and that the command prints it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from arena.door.status import RaceBoard, StatusService, SubmissionStatus
from arena.gate.report import finding, make_report
from arena.policies import PAPER, policy_by_name
from arena.policy import Policy
from arena.race.admission import hold_ends
from arena.race.machine import race_name, stream_of
from arena.records.model import Subject
from arena.records.sequencer import Sequencer
from arena.store.embedded import EmbeddedServer
from arena.store.port import AgreedStanding, StoredSubmission, SubmissionState, WorkItem
from arena.store.postgres import PostgresStore
from foundation.errors import Failure
from neurons.cli.submission import status_lines
from tests.arena.door_stand import Miner, Stand
from tests.arena.log_stand import context, episode
from tests.arena.race_stand import RACE
from tests.arena.race_world import finished

AGENT, HOTKEY = "v-a", "hk-a"  # as the race's world names its first agent
SUBJECT = Subject(
    agent_version_id=AGENT, miner_hotkey=HOTKEY, agent_sha256="b2", commitment_block=7, commitment_sha256="c3"
)
REJECTED = make_report(
    [finding("id-table", 6, "12 ids"), finding("benchmark-text", 9)],
    rules_version="gate/1",
    source_sha256="",
    inputs_sha256="",
)

HELD = make_report([finding("dynamic-attribute", 9)], rules_version="gate/1", source_sha256="", inputs_sha256="")
RULES = replace(policy_by_name("demo"), admission=PAPER.admission)  # admission is agreed on


class Life:
    """One submission, and who tells of it."""

    def __init__(self, store: PostgresStore, stand: Stand) -> None:
        self.store, self.stand = store, stand
        self.statuses = StatusService(store, stand.chain, stand.policy)

    async def told(self) -> tuple[SubmissionStatus, str]:
        """What the door says, as it arrives, and what the command prints of it."""
        (found,) = msgspec.json.decode(
            msgspec.json.encode(await self.statuses.of(HOTKEY)), type=list[SubmissionStatus], strict=True
        )
        answer = {
            "hotkey": HOTKEY,
            "network": "local",
            "netuid": 15,
            "uid": 2,
            "block": 9,
            "finalized_block": 7,
            "commitment": None,
            "validators": [{"url": "http://x", "validator": "5v", "submissions": [found]}],
            "failed": [],
        }
        return found, "\n".join(status_lines(answer))

    async def arrive(self) -> None:
        await self.store.put_submission(StoredSubmission(subject=SUBJECT, name="my-agent", state="waiting"), "source")

    async def decide(self, state: SubmissionState, **fields: Any) -> None:
        report = msgspec.json.encode(REJECTED).decode() if state in ("rejected", "review") else ""
        await self.arrive()
        await self.store.set_submission_state(AGENT, state, fields.pop("report", report), **fields)

    def hold(self, policy: Policy) -> int:
        """The block at which a hold ends under this policy, which is the door's from now on."""
        self.statuses = StatusService(self.store, self.stand.chain, policy)
        return hold_ends(SUBJECT, policy.admission)

    async def happen(self, count: int) -> None:
        """The race up to its event number `count`."""
        for index, event in enumerate(finished().stream[:count]):
            if index >= len(await self.store.events(stream_of(RACE))):
                await self.store.put_event(stream_of(RACE), index, event)


@pytest.fixture
async def life(store: PostgresStore, postgres: EmbeddedServer, tmp_path: Path) -> Life:
    stand = Stand(tmp_path, "", "//Status")
    await Miner(stand).register()
    return Life(store, stand)


async def test_it_waits_and_is_withdrawn(life: Life) -> None:
    await life.arrive()
    found, shown = await life.told()
    assert (found.state, found.next_allowed_block) == ("waiting", 7 + life.stand.policy.cooldown.accepted_blocks)
    assert "waiting" in shown and "final" in shown
    await life.store.set_submission_state(AGENT, "withdrawn", was="waiting")
    found, shown = await life.told()
    assert (found.state, "withdrawn" in shown) == ("withdrawn", True)


async def test_it_is_refused_with_a_reason(life: Life) -> None:
    await life.decide("refused", failure=Failure(code="A1006", detail="allowed from block 3607"))
    found, shown = await life.told()
    assert (found.state, found.next_allowed_block) == ("refused", 0)  # it costs nothing
    assert "A1006 allowed from block 3607" in shown


async def test_the_gate_rejects_it_by_line_or_holds_it(life: Life) -> None:
    await life.decide("rejected")
    found, shown = await life.told()
    assert (found.state, [each.line for each in found.findings]) == ("rejected", [6, 9])
    assert found.failure == REJECTED.failure and "line 6" in shown and "arena check" in shown
    await life.decide("rejected", failure=Failure(code="A1005", detail="a person rejected it: a table"))
    assert "a person rejected it: a table" in (await life.told())[1]
    await life.decide("review")
    assert (await life.told())[0].held_until_block == 0  # each validator decides alone
    until = life.hold(RULES)
    await life.decide("review", report=msgspec.json.encode(HELD).decode())
    found, shown = await life.told()
    assert (found.state, found.held_until_block) == ("review", until)
    assert f"from block {until}" in shown


async def test_it_qualifies_or_not(life: Life) -> None:
    await life.decide("accepted")
    suite = [context(number, "") for number in range(3)]
    items = [
        WorkItem(item_id=f"q{at.problem_id}", subject=SUBJECT, context=replace(at, stage="qualifying")) for at in suite
    ]
    await life.store.enqueue(items)
    found, shown = await life.told()
    assert found.qualifying is not None
    assert (found.state, found.qualifying.done, found.qualifying.total) == ("accepted", 0, 3)
    assert "0 of 3 problems" in shown
    for state in ("qualified", "unqualified"):
        standing = AgreedStanding(
            is_racing=state == "qualified",
            state="accepted",
            accepts=2,
            rejects=0,
            speakers=3,
            needed=2,
            suite_passes=2,
            suite_finished=2,
            suite_needed=2,
        )
        await life.decide(state, qualifying_e4=2_500)
        await life.store.put_agreed(AGENT, standing)
        found, shown = await life.told()
        assert (found.state, found.agreed) == (state, standing)
        assert "score 0.2500" in shown and "passed by 2 of 3" in shown


async def test_nothing_of_a_race_is_told_before_it_is_settled(life: Life) -> None:
    await life.decide("qualified", qualifying_e4=9_000)
    stages = []
    for count in range(1, len(finished().stream) + 1):
        await life.happen(count)
        found, shown = await life.told()
        (race,) = found.races
        stages.append(race.stage)
        is_known = race.stage == "settled"
        assert (race.rank is not None, race.score_e4 is not None, "rank" in shown) == (is_known,) * 3
    assert list(dict.fromkeys(stages)) == ["upcoming", "racing", "settled"]
    assert stages.count("settled") == 1  # settled and released: the batch is released by the last event
    assert (race.rank, race.agents, race.is_top) == (1, 2, True)
    assert race.low_e4 is not None and race.high_e4 is not None and race.low_e4 <= race.score_e4 <= race.high_e4


async def test_the_judge_is_heard_after_the_release_and_not_before(life: Life, sequencer: Sequencer) -> None:
    await life.decide("qualified")
    payloads, body = episode(1, race_id=RACE)
    await sequencer.append([replace(each, subject=SUBJECT) for each in payloads], [body])
    whole = len(finished().stream)
    await life.happen(whole - 1)
    found, shown = await life.told()
    assert (found.races[0].stage, found.judged, "judge" in shown) == ("racing", (), False)
    await life.happen(whole)
    found, shown = await life.told()
    assert [each.sentences for each in found.judged] == [("It searches before it answers.",)]
    assert "It searches before it answers." in shown


async def test_status_says_where_an_agent_stands_with_all_validators(life: Life) -> None:
    agreed = AgreedStanding(
        is_racing=False,
        state="held",
        accepts=1,
        rejects=1,
        speakers=3,
        needed=2,
        suite_passes=2,
        suite_finished=3,
        suite_needed=2,
    )
    until = life.hold(RULES)
    await life.decide("review", report=msgspec.json.encode(HELD).decode())
    await life.store.put_agreed(AGENT, agreed)
    _, shown = await life.told()
    assert "gate passed by 1 of 3 validators, rejected by 1; suite passed by 2 of 3" in shown
    assert "it does not race" in shown and f"counts as accepted from block {until}" in shown
    await life.decide("qualified")
    await life.store.put_agreed(AGENT, replace(agreed, state="cooldown", allowed_block=99))
    _, shown = await life.told()
    assert "submit again from block 99" in shown and str(until) not in shown
    await life.store.put_agreed(AGENT, replace(agreed, is_racing=True))
    assert "it races" in (await life.told())[1]


async def test_a_year_of_races_is_told_of_by_its_newest_and_no_more_are_kept(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.door.status.RACES_TOLD", 3)
    names = [race_name(number) for number in range(1, 8)]
    board = RaceBoard(life.store)
    for told, name in enumerate(names, start=1):
        for index, event in enumerate(finished().stream):
            await life.store.put_event(stream_of(name), index, event.replace(RACE, name))
        assert [state.race_id for state in await board.states()] == names[max(0, told - 3) : told]
    assert [len(kept) for kept in vars(board).values() if isinstance(kept, dict)] == [3, 0]
