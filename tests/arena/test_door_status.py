"""Status, in every state of a submission's life: what the door says of it, and that the command prints it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from arena.api.board import Board
from arena.door.answers import SubmissionStatus
from arena.door.service import Desk
from arena.gate.rules import finding, make_report
from arena.policies import PAPER, policy_by_name
from arena.policy import Policy
from arena.race.admission import hold_ends
from arena.race.machine import stream_of
from arena.records.model import Subject
from arena.records.port import AgreedStanding, StoredSubmission, SubmissionState, WorkItem
from arena.records.sequencer import Sequencer
from arena.sn15.picture import Picture
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from foundation.errors import Failure
from neurons.cli.submission import status_lines
from tests.arena.door_stand import Miner, Stand, unix_ms
from tests.arena.log_stand import context, episode, release
from tests.arena.race_stand import RACE
from tests.arena.test_race_state import finished

AGENT, HOTKEY = "v-a", "hk-a"  # as the race's world names its first agent
SUBJECT = Subject(
    agent_version_id=AGENT, miner_hotkey=HOTKEY, agent_sha256="b2", commitment_block=7, commitment_sha256="c3"
)
VERSIONS = {"rules_version": "gate/1", "source_sha256": "", "inputs_sha256": ""}
REJECTED = make_report([finding("id-table", 6, "12 ids"), finding("benchmark-text", 9)], **VERSIONS)
HELD = make_report([finding("dynamic-attribute", 9)], **VERSIONS)
RULES = replace(policy_by_name("demo"), admission=PAPER.admission)  # admission is agreed on
AGREED = AgreedStanding(
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


class Life:
    """One submission, and who tells of it."""

    def __init__(self, store: PostgresStore, stand: Stand) -> None:
        self.store, self.stand = store, stand
        self.board = Board(store, now_ms=unix_ms, refresh_s=0.0)
        self.desk = Desk(store, stand.chain, stand.policy, self.board)

    async def told(self) -> tuple[SubmissionStatus, str]:
        """What the door says, as it arrives, and what the command prints of it."""
        (found,) = msgspec.json.decode(
            msgspec.json.encode(await self.desk.statuses(HOTKEY)), type=list[SubmissionStatus], strict=True
        )
        door = {"url": "http://x", "validator": "5v", "submissions": [found], "view": "arena view NUMBER"}
        answer = {"hotkey": HOTKEY, "network": "local", "netuid": 15, "uid": 2, "block": 9, "finalized_block": 7}
        return found, "\n".join(status_lines(answer | {"commitment": None, "validators": [door], "failed": []}))

    async def decide(self, state: SubmissionState, report: Any = None, **fields: Any) -> None:
        await self.store.put_submission(StoredSubmission(subject=SUBJECT, name="my-agent", state="waiting"), "source")
        if state != "waiting":
            text = msgspec.json.encode(report).decode() if report else ""
            await self.store.set_submission_state(AGENT, state, text, **fields)

    def picture(self, found: SubmissionStatus) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same version and its race as the published SN15 API tells them."""
        shown = Picture(self.board)
        return shown.own(found), shown.race_public(self.board.race(RACE))

    def hold(self, policy: Policy) -> int:
        """The block at which a hold ends under this policy, which is the door's from now on."""
        self.desk = Desk(self.store, self.stand.chain, policy, self.board)
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


GATE = [
    ("waiting", None, None, "waiting.*final"),
    ("withdrawn", None, None, "withdrawn"),
    ("refused", None, Failure(code="A1006", detail="allowed from block 3607"), "A1006 allowed from block 3607"),
    ("rejected", REJECTED, None, "line 6.*arena check"),
    ("rejected", REJECTED, Failure(code="A1005", detail="a person rejected it"), "a person rejected it"),
    ("review", HELD, None, "a person looks at it"),
]


async def test_every_end_of_the_gate_is_told_with_what_to_do(life: Life) -> None:
    for state, report, failure, said in GATE:
        await life.decide("waiting")
        await life.decide(state, report, failure=failure)
        found, shown = await life.told()
        assert found.state == state and found.failure == (failure or (report.failure if report else None))
        assert [each.line for each in found.findings] == [each.line for each in (report.findings if report else ())]
        costs_nothing = state in ("refused", "withdrawn")
        allowed = 7 + life.stand.policy.cooldown.accepted_blocks
        assert found.next_allowed_block == (0 if costs_nothing else allowed) or state == "rejected"
        assert bool(found.held_until_block) is (state == "review")  # by a heuristic: it runs out
        assert all(part in shown for part in said.split(".*"))


async def test_a_hold_and_where_an_agent_stands_with_all_validators(life: Life) -> None:
    until = life.hold(RULES)
    await life.decide("review", HELD)
    await life.store.put_agreed(AGENT, AGREED)
    found, shown = await life.told()
    assert (found.state, found.held_until_block, found.agreed) == ("review", until, AGREED)
    assert "gate passed by 1 of 3 validators, rejected by 1; suite passed by 2 of 3" in shown
    assert "it does not race" in shown and f"counts as accepted from block {until}" in shown
    await life.decide("qualified")
    await life.store.put_agreed(AGENT, replace(AGREED, state="cooldown", allowed_block=99))
    _, shown = await life.told()
    assert "submit again from block 99" in shown and str(until) not in shown
    await life.store.put_agreed(AGENT, replace(AGREED, is_racing=True))
    assert "it races" in (await life.told())[1]


async def test_it_qualifies_or_not(life: Life) -> None:
    await life.decide("accepted")
    suite = [replace(context(number, ""), stage="qualifying") for number in range(3)]
    await life.store.enqueue([WorkItem(item_id=f"q{at.problem_id}", subject=SUBJECT, context=at) for at in suite])
    found, shown = await life.told()
    assert (found.state, found.qualifying.done, found.qualifying.total) == ("accepted", 0, 3)
    assert "0 of 3 done; a mean of" in shown
    for state in ("qualified", "unqualified"):
        await life.decide(state, qualifying_e4=2_500)
        found, shown = await life.told()
        assert found.state == state and "mean 0.2500" in shown


async def test_nothing_of_a_race_is_told_before_it_is_settled_and_released(life: Life, sequencer: Sequencer) -> None:
    await life.decide("qualified", qualifying_e4=9_000)
    payloads, body = episode(1, race_id=RACE)
    await sequencer.append([replace(each, subject=SUBJECT) for each in payloads], [body])
    stages = []
    for count in range(1, len(finished().stream) + 1):
        await life.happen(count)
        found, shown = await life.told()
        (own,) = found.races
        stages.append(own.race.stage)
        assert own.stood is None and "rank" not in shown and found.problems == () and "judged" not in shown
        guest, race = life.picture(found)
        assert guest["race_score"] is race["winner_score"] is None and guest["is_active_qualifier"]
    assert list(dict.fromkeys(stages)) == ["open", "closed", "running", "settling", "settled"]
    await sequencer.append([release(RACE, (1,))], [])
    found, shown = await life.told()
    guest, race = life.picture(found)
    assert (race["status"], guest["is_active_qualifier"]) == ("RACE_COMPLETE", False)
    assert guest["race_score"] is not None and race["winner_score"] is not None
    (own,) = found.races
    assert own.stood is not None and (own.stood.standing.rank, own.race.agents) == (1, 2)
    assert own.race.top_agent_version_id == AGENT and "rank 1 of 2, took the top" in shown
    assert own.stood.standing.low_e4 <= own.stood.standing.race_score_e4 <= own.stood.standing.high_e4
    assert [(each.sentences, each.is_solved) for each in found.problems] == [
        (("It searches before it answers.",), True)
    ]
    said = f"solved {found.problems[0].problem_id}, judged "
    assert said in shown and "It searches before it answers." in shown and "a trace: arena view NUMBER" in shown
