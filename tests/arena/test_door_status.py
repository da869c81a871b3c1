"""What the door says of submissions, to our miners and to SN15's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from arena.api.board import Board
from arena.door.answers import PauseState, SubmissionStatus
from arena.door.service import Desk, put_pause
from arena.gate.rules import finding, make_report
from arena.policies import PAPER, POLICIES
from arena.policy import Policy
from arena.race.admission import hold_ends
from arena.race.machine import stream_of
from arena.records.model import Subject
from arena.records.port import AgreedStanding, StoredSubmission, SubmissionState, WorkItem
from arena.records.sequencer import Sequencer
from arena.sn15.picture import Picture, uuid_of, version_uuid
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from foundation.errors import Failure
from neurons.cli.submission import status_lines
from tests.arena.door_stand import (
    AGENT,
    WIDE_RULES,
    LegacyAuth,
    LegacyMiner,
    Miner,
    Stand,
    open_to_commitments,
    send,
    serving,
    told,
    unix_ms,
)
from tests.arena.log_stand import context, episode, release
from tests.arena.race_stand import RACE
from tests.arena.test_race_state import finished
from tests.keys import generate_signer

RACER, HOTKEY = "v-a", "hk-a"  # as the race's world names its first agent
SUBJECT = Subject(
    agent_version_id=RACER, miner_hotkey=HOTKEY, agent_sha256="b2", commitment_block=7, commitment_sha256="c3"
)
VERSIONS = {"rules_version": "gate/1", "source_sha256": "", "inputs_sha256": ""}
REJECTED = make_report([finding("id-table", 6, "12 ids"), finding("benchmark-text", 9)], **VERSIONS)
HELD = make_report([finding("dynamic-attribute", 9)], **VERSIONS)
RULES = replace(POLICIES["demo"], admission=PAPER.admission)  # admission is agreed on
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
            await self.store.set_submission_state(RACER, state, text, **fields)

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
    await life.store.put_agreed(RACER, AGREED)
    found, shown = await life.told()
    assert (found.state, found.held_until_block, found.agreed) == ("review", until, AGREED)
    assert "gate passed by 1 of 3 validators, rejected by 1; suite passed by 2 of 3" in shown
    assert "it does not race" in shown and f"counts as accepted from block {until}" in shown
    await life.decide("qualified")
    await life.store.put_agreed(RACER, replace(AGREED, state="cooldown", allowed_block=99))
    _, shown = await life.told()
    assert "submit again from block 99" in shown and str(until) not in shown
    await life.store.put_agreed(RACER, replace(AGREED, is_racing=True))
    assert "it races" in (await life.told())[1]


async def test_it_qualifies_or_not(life: Life) -> None:
    await life.decide("accepted")
    suite = [replace(context(number, ""), stage="qualifying") for number in range(3)]
    await life.store.enqueue([WorkItem(item_id=f"q{at.problem_id}", subject=SUBJECT, context=at) for at in suite])
    found, shown = await life.told()
    assert (found.state, found.qualifying.done, found.qualifying.total) == ("accepted", 0, 3)
    assert "0 of 3 done; a mean of" in shown and "final now" not in shown  # which grows: --watch would repeat all
    for state, mean_e4 in (("qualified", None), ("qualified", 2_500), ("unqualified", 2_500)):
        await life.decide(state, qualifying_e4=mean_e4)
        found, shown = await life.told()
        assert found.state == state and ("mean 0.2500" if mean_e4 else "0 of 3 done (its end was certain);") in shown


async def test_nothing_of_a_race_is_told_before_it_is_settled_and_released(life: Life, sequencer: Sequencer) -> None:
    await life.decide("qualified", qualifying_e4=9_000)
    payloads, body = episode(1, race_id=RACE)  # the first verdict is under another prompt than the race's
    counted = replace(payloads[2].verdict, prompt_sha256=PAPER.rubric.prompt_sha256, quality_e4=5_000)
    payloads += [replace(payloads[2], verdict=counted)]
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
    assert own.race.top_agent_version_id == RACER and "rank 1 of 2, took the top" in shown
    assert own.stood.standing.low_e4 <= own.stood.standing.race_score_e4 <= own.stood.standing.high_e4
    (told,) = found.problems
    assert (told.sentences, told.is_solved, told.quality_e4) == (("It searches before it answers.",), True, 5_000)
    said = f"solved {told.problem_id}, judged "
    assert said in shown and "It searches before it answers." in shown and "a trace: arena view NUMBER" in shown


REPORT = make_report([finding("id-table", 6, "12 ids")], rules_version="gate/3", source_sha256="", inputs_sha256="")


@pytest.fixture
def stand(postgres: EmbeddedServer, tmp_path: Path) -> Stand:
    made = Stand(tmp_path, "", f"//Sn15{generate_signer().hotkey[-8:]}")
    made.dsn = postgres.dsn_for(made.validator)
    return made


@pytest.fixture
def served(stand: Stand) -> Iterator[Stand]:
    with serving(open_to_commitments(stand), WIDE_RULES):
        yield stand


async def test_a_submission_needs_its_commitment_and_then_waits_in_the_one_queue(served: Stand) -> None:
    miner = await LegacyMiner(served).register()
    refused = await miner.submit()
    assert told(refused) == (409, "COMMITMENT_MISSING")
    assert "arena commit" in refused.json()["detail"]
    made = await miner.commit()
    assert told(await miner.submit(AGENT.encode() + b"# more\n")) == (409, "COMMITMENT_MISSING")
    taken = (await miner.submit()).raise_for_status().json()
    version = version_uuid(made.agent_version_id)
    assert (taken["admission_status"], taken["agent_version_id"]) == ("ACCEPTED", version)
    assert taken["agent_id"] == uuid_of("agent", miner.signer.hotkey, "agent")
    again = (await miner.submit()).json()
    assert {**again, "next_allowed_at": ""} == {**taken, "next_allowed_at": ""}
    native = (await send(miner.signed("GET", "/v1/submissions"))).json()
    assert [(each["agent_version_id"], each["state"]) for each in native] == [(made.agent_version_id, "waiting")]
    public = await miner.get(f"/v1/public/agent-versions/{version}/status")
    own = await miner.get(f"/v1/miner/agent-versions/{version}")
    assert public["state"] == own["state"] == "RECEIVED" and own["detail"]
    assert {name: own[name] for name in public} == public
    withdrawn = await send(miner.signed("DELETE", f"/v1/submissions/{made.agent_version_id}"))
    assert withdrawn.status_code == 200
    assert (await miner.get(f"/v1/miner/agent-versions/{version}"))["state"] == "CANCELLED"


async def test_a_policy_that_asks_for_signatures_names_what_is_missing_and_the_command_that_makes_it(
    stand: Stand,
) -> None:
    with serving(open_to_commitments(stand, is_open=False), WIDE_RULES):
        miner = await LegacyMiner(stand).register()
        without = await miner.submit()
        made = await miner.commit()
        async with miner.client() as http:
            asked = [await http.get("/v1/miner/inference-auth"), await http.put("/v1/miner/race-selection")]
            public = await http.get("/v1/public/top")
        for answer in (without, await miner.submit(), *asked):
            assert told(answer) == (409, "SIGNATURE_MISSING")
            said = answer.json()["detail"]
            assert f"`arena submit AGENT.py --url {stand.address}`" in said and "`arena commit AGENT.py`" in said
            assert stand.policy.name in said and "commitment on chain" in said
        assert public.status_code == 404 and public.json()["code"] == "V2113"
        assert (await send(miner.request(made))).status_code == 202


async def test_headers_are_let_through_once_within_their_minute_and_after_a_restart(stand: Stand) -> None:
    open_to_commitments(stand)
    path = "/v1/miner/inference-auth"

    async def ask(headers: dict[str, str]) -> httpx2.Response:
        return await send(httpx2.Request("GET", stand.address + path, headers=headers))

    with serving(stand, WIDE_RULES):
        miner = await LegacyMiner(stand).register()
        auth = LegacyAuth(miner.signer)
        ahead = auth.headers(off_s=50)
        answer = await ask(ahead)
        assert answer.json()["default_provider"] == "validator"
        assert told(await ask(ahead)) == (401, "NONCE_REUSED")
        for off_s in (-65, 65):
            assert told(await ask(auth.headers(off_s))) == (401, "TIMESTAMP_SKEW")
        wrong = {
            "X-Hotkey": (400, "INVALID_HOTKEY_FORMAT"),
            "X-Timestamp": (400, "INVALID_TIMESTAMP"),
            "X-Signature": (400, "INVALID_SIGNATURE_FORMAT"),
            "X-Nonce": (401, "INVALID_SIGNATURE"),
        }
        for name, expected in wrong.items():
            assert told(await ask(auth.headers() | {name: "zz"})) == expected
            without = {key: value for key, value in auth.headers().items() if key != name}
            assert told(await ask(without)) == (401, "MISSING_HEADERS")
        assert told(await ask(auth.headers() | {"X-Nonce": "n" * 300})) == (400, "NONCE_TOO_LONG")
        assert told(await ask(LegacyAuth(generate_signer()).headers())) == (403, "NOT_REGISTERED")
    with serving(stand, WIDE_RULES):
        assert told(await ask(ahead)) == (401, "NONCE_REUSED")


REFUSED = [
    (b"y = '\xff'\n", "agent", (400, "INVALID_FILE")),
    (b"def agent_main(problem:\n    pass\n", "agent", (422, "CODE_ANALYSIS_ERROR")),
    (b"x = 1\n", "agent", (422, "CODE_ANALYSIS_ERROR")),
    (b"#" * 1_000_001, "agent", (413, "FILE_TOO_LARGE")),
    (b"#" * 2_000_000, "agent", (413, "FILE_TOO_LARGE")),
    (AGENT.encode(), "../etc", (400, "INVALID_AGENT_NAME")),
]


async def test_refusals_have_that_api_s_codes(served: Stand) -> None:
    miner = await LegacyMiner(served).register()
    for source, name, expected in REFUSED:
        answer = await miner.submit(source, name)
        assert told(answer) == expected
        if expected[0] == 422:
            (violation,) = answer.json()["violations"]
            assert set(violation) == {"rule", "severity", "message", "line"} and violation["message"]


async def test_pause_cooldown_a_full_queue_and_a_stale_chain_have_their_codes(stand: Stand) -> None:
    open_to_commitments(stand)
    stand.policy = replace(stand.policy, cooldown=replace(stand.policy.cooldown, accepted_blocks=10_000))
    store = await PostgresStore.open(stand.dsn, stand.validator)
    with serving(stand, WIDE_RULES):
        miner = await LegacyMiner(stand).register()
        first = await miner.commit()
        await put_pause(store, PauseState(is_paused=True, reason="the catalogue is being rebuilt", since_ms=1))
        paused = await miner.submit()
        assert told(paused) == (503, "SUBMISSIONS_PAUSED") and "being rebuilt" in paused.json()["detail"]
        await put_pause(store, PauseState())
        assert (await miner.submit()).status_code == 200
        more = AGENT + "# 2\n"
        await miner.commit(more)
        assert told(await miner.submit(more.encode())) == (409, "SUBMISSION_WAITING")
        await store.set_submission_state(first.agent_version_id, "accepted", was="waiting")
        early = await miner.submit(more.encode())
        assert told(early) == (429, "COOLDOWN_ACTIVE") and early.json()["remaining_seconds"] > 100_000
        agents = await miner.get("/v1/miner/agents")
        assert not agents["can_submit"] and agents["next_allowed_at"] > "2020"
    with serving(stand, WIDE_RULES, stale_s=-1.0):
        assert told(await miner.submit()) == (503, "SUBMISSIONS_PAUSED")
    await store.close()


async def test_every_state_before_a_race_has_a_word(served: Stand) -> None:
    miner = await LegacyMiner(served).register()
    made = await miner.commit()
    await miner.submit()
    store = await PostgresStore.open(served.dsn, served.validator)
    agent = made.agent_version_id
    subject = Subject(agent_version_id=agent, miner_hotkey=miner.signer.hotkey, agent_sha256=made.agent_sha256)
    path = f"agent-versions/{version_uuid(agent)}"

    async def shown(state: Any, report: Any = None, **fields: Any) -> tuple[dict, dict]:
        text = msgspec.json.encode(report).decode() if report else ""
        await store.set_submission_state(agent, state, text, **fields)
        async with miner.client() as http:
            public = (await http.get(f"/v1/public/{path}/status")).json()
        return await miner.get(f"/v1/miner/{path}"), public

    own, _ = await shown("refused", failure=Failure(code="A1006", detail="allowed from block 9"))
    assert own["state"] == "DISCARDED" and own["violations"][0]["rule"] == "A1006"
    for state, report, word in (
        ("review", None, "QUEUED"),
        ("rejected", REPORT, "DISCARDED"),
        ("accepted", None, "QUEUED"),
    ):
        own, public = await shown(state, report)
        assert own["state"] == public["state"] == word and "violations" not in public
        assert report is None or [(each["rule"], each["line"]) for each in own["violations"]] == [("id-table", 6)]
    pending = (await miner.get("/v1/public/evaluations/pending"))["items"]
    assert [each["agent_version_id"] for each in pending] == [version_uuid(agent)]
    at = replace(context(1, ""), stage="qualifying")
    await store.enqueue([WorkItem(item_id="q1", subject=subject, context=at)])
    for state in ("qualified", "unqualified"):
        own, public = await shown(state, qualifying_e4=2_500)
        assert own["state"] == public["state"] == "ELIGIBLE" and own["success_count"] == 1
        assert (own["final_score"], public["final_score"]) == (0.25, None)
    (one,) = (await miner.get("/v1/miner/agents"))["agents"]
    assert one["latest_version"]["state"] == "ELIGIBLE"
    assert len(await miner.get(f"/v1/miner/agents/{one['agent_id']}/versions")) == 1
    stranger = await LegacyMiner(served).register()
    async with stranger.client() as http:
        assert told(await http.get(f"/v1/miner/{path}")) == (404, "AGENT_VERSION_NOT_FOUND")
        assert told(await http.get(f"/v1/miner/agents/{one['agent_id']}/versions")) == (404, "AGENT_NOT_FOUND")
    await store.close()
