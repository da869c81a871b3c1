"""The parts that public reads are made of: cursors, ranges, limits; and what a page says of a race's winner."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Iterator
from datetime import datetime

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from typer.testing import CliRunner

from arena.api.rows import AgentDetail, PageStart, page_of, read_cursor, write_cursor
from arena.door.client import DoorClient
from arena.records.log import agent_version_id
from arena.records.model import Subject
from arena.records.port import StoredSubmission
from arena.sn15.picture import uuid_of, version_uuid
from arena.store.postgres import PostgresStore
from foundation.canonical import text_hash
from foundation.errors import ArenaError
from neurons.cli.race import leaderboard_app
from tests.arena.log_stand import release, settlement
from tests.arena.sealed_stand import LOSER, OPENS_MS, RACES, RUNNING, SEALED, WINNER, fill
from tests.arena.tail_stand import Author, serving
from tests.keys import generate_signer

# -- cursors


def walk(rows: list[int], limit: int, is_newest_first: bool) -> list[int]:
    """All pages of a list."""
    seen, cursor = [], ""
    while True:
        page = page_of(rows, lambda row: (row,), "s", PageStart(cursor, limit), is_newest_first=is_newest_first)
        seen += page.items
        if not page.next:
            return seen
        cursor = page.next


numbers = st.lists(st.integers(0, 1000), unique=True, min_size=1, max_size=30)


@given(numbers, st.integers(1, 7), st.booleans())
def test_pages_hold_every_row_once_and_in_order(rows, limit, is_newest_first):
    assert walk(rows, limit, is_newest_first) == sorted(rows, reverse=is_newest_first)


@settings(max_examples=30)
@given(st.text(max_size=20))
def test_text_that_is_no_cursor_is_refused(text):
    try:
        key = read_cursor(text, "s")
    except ArenaError as error:
        assert error.failure.code == "V2081"
    else:
        assert write_cursor("s", key).rstrip("=") and key


# -- a winner, by HTTP


@pytest.fixture(scope="module")
def author(postgres) -> Author:
    signer = generate_signer()
    made = Author(postgres.dsn_for(signer.hotkey), signer)
    fill(made)
    return made


def test_a_winner_s_source_opens_at_its_moment_and_resumes(author):
    now = [OPENS_MS - 1]
    with serving(author.dsn, now_ms=lambda: now[0]) as server, httpx2.Client(base_url=server.address) as http:
        source = f"/v1/agents/{WINNER * 32}/source"
        early = http.get(source)
        assert (early.status_code, early.json()["code"]) == (403, "V2089")
        assert "until 2033-05-18T03:33:20+00:00" in early.json()["message"]
        row = http.get(f"/v1/agents/{WINNER * 32}").json()
        assert (row["agent"]["source"]["opens_ms"], row["findings"]) == (OPENS_MS, None)
        board = http.get(f"/v1/races/{SEALED}/leaderboard", params={"limit": 1}).json()
        assert [one["rank"] for one in board["items"]] == [1]  # rank and score are public under embargo
        following = http.get(f"/v1/races/{SEALED}/leaderboard", params={"limit": 1, "cursor": board["next"]}).json()
        assert [one["rank"] for one in following["items"]] == [2] and following["next"] == ""
        assert http.get(f"/v1/races/{RUNNING}/leaderboard").status_code == 403
        now[0] = OPENS_MS
        whole = http.get(source)
        assert whole.status_code == 200 and b"SOURCE-OF-THE-WINNER" in whole.content
        assert whole.headers["etag"] == f'"{hashlib.sha256(whole.content).hexdigest()}"'
        assert http.get(source, headers={"if-none-match": whole.headers["etag"]}).status_code == 304
        loser = http.get(f"/v1/agents/{LOSER * 32}/source")
        assert loser.status_code == 403 and "not promoted" in loser.json()["message"]
        (trace,) = http.get(f"/v1/races/{SEALED}/trajectories", params={"agent": WINNER * 32}).json()["items"]
        shown = http.get(trace["href"]).json()
        assert shown["evaluation"]["body"]["query"] == f"TRACE-OF-{SEALED}" and len(shown["verdicts"]) == 1
        matrix = http.get(f"/v1/races/{SEALED}/problems", params={"pool": ["train", "eval"]}).json()["items"]
        found = [(row["problem_id"], row["pool"], len(row["results"])) for row in matrix]
        assert found == [("p0001", "train", 2), ("p0002", "eval", 2)]


# -- the winner, by the client


SOURCE = "def agent_main(problem):\n    return ['é']\n"


def crown(postgres, signer, source: str) -> Author:
    """The log of a race whose top agent is that of SOURCE, under embargo, with this file in the store."""
    author, miner = Author(postgres.dsn_for(signer.hotkey), signer), generate_signer().hotkey
    subject = Subject(
        agent_version_id=agent_version_id(miner, text_hash(SOURCE)), miner_hotkey=miner, agent_sha256=text_hash(SOURCE)
    )
    record = settlement("r1")
    (row,) = record.standings
    standing = replace(row, agent_version_id=subject.agent_version_id, miner_hotkey=miner)
    author.append([replace(record, standings=(standing,), top_agent_version_id=subject.agent_version_id)])
    author.append([replace(release("r1", ()), opens_ms=OPENS_MS)])

    async def submit() -> None:
        store = await PostgresStore.open(author.dsn, author.signer.hotkey)
        stored = StoredSubmission(subject=subject, name="best", state="qualified")
        await store.put_submission(stored, source)
        await store.close()

    asyncio.run(submit())
    return author


def read_winner(url: str) -> tuple[AgentDetail, bytes]:
    async def read() -> tuple[AgentDetail, bytes]:
        async with DoorClient() as client:
            return await client.winner(url)

    return asyncio.run(read())


def test_the_file_of_the_winner_is_read_after_the_embargo(postgres, signer) -> None:
    crowned, now = crown(postgres, signer, SOURCE), [OPENS_MS - 1]
    with serving(crowned.dsn, now_ms=lambda: now[0]) as server:
        with pytest.raises(ArenaError, match="V2089") as early:
            read_winner(server.address)
        assert "until 2033-05-18T03:33:20+00:00" in early.value.failure.detail
        now[0] = OPENS_MS
        found, source = read_winner(server.address)
        board = CliRunner().invoke(leaderboard_app, ["--url", server.address]).stdout
        assert board.startswith("r1, ") and " 1 best " in board
    assert (found.agent.name, source.decode()) == ("best", SOURCE)
    assert [(one.race_id, one.standing.race_score_e4) for one in found.races] == [("r1", 9_125)]


def test_another_file_than_the_committed_one_is_refused(postgres, signer) -> None:
    crowned = crown(postgres, signer, SOURCE + "# other\n")
    with serving(crowned.dsn, now_ms=lambda: OPENS_MS) as server, pytest.raises(ArenaError, match="U3042"):
        read_winner(server.address)


# -- the same reads under the names of the published SN15 API: what its generated client decodes


# model -> (needed, optional); nested models by field
MODELS = {
    "RacePublic": (
        "race_id suite_id status",
        "race_number qualifying_closes_at race_started_at race_completed_at winner_agent_version_id winner_score"
        " qualifying_threshold winner_agent_name qualifier_count scored_count top50_mean top50_std created_at"
        " projected_completion_at",
    ),
    "RaceCurrentResponse": ("", "race qualifiers"),
    "RaceHistoryResponse": ("total limit offset races", ""),
    "TopAgentResponse": (
        "suite_id computed_at",
        "top_agent_version_id top_miner_hotkey top_score policy challenge_threshold margin",
    ),
    "TopHistoryResponse": ("suite_id entries", ""),
    "TopHistoryEntry": (
        "agent_version_id agent_name miner_hotkey version_number final_score top_at is_current_top was_top suite_id",
        "",
    ),
    "LeaderboardResponse": (
        "total limit offset suite entries unique_miners",
        "agents_submitted_24h challenge_threshold",
    ),
    "SuitePublic": (
        "suite_id suite_version is_active",
        "execution_kind environment benchmark_name benchmark_number",
    ),
    "AgentVersionStatus": (
        "agent_version_id agent_name miner_hotkey version_number submitted_at state",
        "eliminated_at eliminated_in_race_number suite_id required_successes success_count active_count is_closed"
        " final_score race_score reasoning_coefficient release_state code_available_at is_active_qualifier"
        " outranked_by_agent_version_id weighted_score window",
    ),
    "AgentVersionPublic": (
        "agent_version_id agent_id agent_name miner_hotkey version_number submitted_at released_at code_available_at",
        "suite_id latest_final_score",
    ),
    "ArtifactDownloadResponse": ("download_url expires_at", ""),
    "EvaluationRunPublic": (
        "eval_run_id agent_version_id suite_id validator_hotkey status claimed_at lease_expires_at is_included",
        "last_heartbeat_at completed_at validator_score phase race_id race_number",
    ),
    "EvaluationRunDetail": (
        "eval_run_id agent_version_id agent_name validator_hotkey status version_number claimed_at",
        "score completed_at is_included execution_kind",
    ),
    "RunningEvaluation": (
        "eval_run_id agent_version_id agent_name version_number miner_hotkey validator_hotkey status started_at",
        "progress_percent phase race_id",
    ),
    "PendingEvaluationsResponse": ("summary items", ""),
    "ValidatorPublic": ("hotkey status registered_at", "last_seen_at current_agent"),
}
WINNER_ID, LOSER_ID = version_uuid(WINNER * 32), version_uuid(LOSER * 32)


def check(model: str, answer: dict) -> None:
    needed, optional = (set(names.split()) for names in MODELS[model])
    assert needed <= set(answer) <= needed | optional, model
    for name, value in answer.items():
        if name in needed:
            assert value is not None, name
        if value is not None and name.endswith("_at"):
            assert datetime.fromisoformat(value).tzinfo is not None
        if value is not None and name.endswith(("race_id", "version_id", "agent_id")):
            uuid.UUID(value)


@pytest.fixture(scope="module", params=[OPENS_MS - 1, OPENS_MS])
def served(request, author) -> Iterator[tuple[bool, httpx2.Client]]:
    with (
        serving(author.dsn, now_ms=lambda: request.param, is_sn15_served=True) as server,
        httpx2.Client(base_url=server.address) as http,
    ):
        yield request.param == OPENS_MS, http


def test_every_answer_has_the_fields_of_its_model(served):
    _, http = served
    for path, model in {
        "races/current": "RaceCurrentResponse",
        "races/history": "RaceHistoryResponse",
        "top": "TopAgentResponse",
        "top/history": "TopHistoryResponse",
        "leaderboard": "LeaderboardResponse",
        "suites/current": "SuitePublic",
        f"agent-versions/{WINNER_ID}/status": "AgentVersionStatus",
        f"agent-versions/{LOSER_ID}/status": "AgentVersionStatus",
    }.items():
        check(model, http.get(f"/v1/public/{path}").raise_for_status().json())
    for race in http.get("/v1/public/races/history").json()["races"]:
        check("RacePublic", race)
    for entry in http.get("/v1/public/top/history").json()["entries"]:
        check("TopHistoryEntry", entry)
    for suite in http.get("/v1/public/suites").json():
        check("SuitePublic", suite)
    for run in http.get(f"/v1/public/agent-versions/{WINNER_ID}/runs").json():
        check("EvaluationRunPublic", run)
        check("EvaluationRunDetail", http.get(f"/v1/public/evaluation-runs/{run['eval_run_id']}").json())
    for run in http.get("/v1/public/evaluations/running").json():
        check("RunningEvaluation", run)
    for validator in http.get("/v1/public/validators").json():
        check("ValidatorPublic", validator)
    check("PendingEvaluationsResponse", http.get("/v1/public/evaluations/pending").json())


def test_a_race_under_way_has_counts_and_no_winner(served):
    _, http = served
    shown = http.get(f"/v1/public/races/{uuid_of('race', RUNNING)}").json()["race"]
    assert (shown["status"], shown["scored_count"]) == ("RACE_RUNNING", 4)
    assert shown["winner_agent_version_id"] is shown["winner_score"] is None
    settled = http.get(f"/v1/public/races/{uuid_of('race', SEALED)}").json()["race"]
    assert (settled["status"], settled["winner_agent_version_id"]) == ("RACE_COMPLETE", WINNER_ID)


def test_a_run_has_its_score_once_its_race_is_settled(served):
    _, http = served
    runs = {run["race_id"]: run for run in http.get(f"/v1/public/agent-versions/{LOSER_ID}/runs").json()}
    assert set(runs) == {uuid_of("race", each) for each in RACES}
    running, settled = runs[uuid_of("race", RUNNING)], runs[uuid_of("race", SEALED)]
    assert (running["status"], running["validator_score"], running["is_included"]) == ("RUNNING", None, False)
    assert (settled["status"], settled["validator_score"]) == ("SUCCESS", 0.8)
    assert http.get(f"/v1/public/evaluation-runs/{running['eval_run_id']}").json()["score"] is None
    missing = http.get(f"/v1/public/evaluation-runs/{LOSER_ID}")
    assert (missing.status_code, missing.json()["error_code"]) == (404, "EVAL_RUN_NOT_FOUND")


def test_ids_are_uuids_of_version_8_and_a_version_s_begins_like_its_id():
    ids = [version_uuid("0123456789abcdef" * 4), uuid_of("race", "race-1"), version_uuid("no sha256")]
    assert [(uuid.UUID(each).version, uuid.UUID(each).variant) for each in ids] == [(8, uuid.RFC_4122)] * 3
    assert ids[0] == "01234567-89ab-8def-8123-456789abcdef" and len(set(ids)) == 3


def test_code_is_released_when_the_embargo_is_over_and_a_loser_s_never(served):
    is_over, http = served

    def asked(version: str, kind: str = "AGENT_CODE") -> httpx2.Response:
        body = {"artifact_type": kind, "agent_version_id": version}
        return http.post("/v1/public/artifacts/download-url", json=body)

    answer, status = asked(WINNER_ID), http.get(f"/v1/public/agent-versions/{WINNER_ID}/status").json()
    assert status["release_state"] == ("RELEASED" if is_over else "HIDDEN")
    if is_over:
        check("ArtifactDownloadResponse", answer.json())
        assert b"SOURCE-OF-THE-WINNER" in http.get(answer.json()["download_url"]).content
        check("AgentVersionPublic", http.get(f"/v1/public/agent-versions/{WINNER_ID}").json())
    else:
        assert (answer.status_code, answer.json()["error_code"]) == (403, "RACE_IN_FLIGHT")
    loser = asked(LOSER_ID)
    assert (loser.status_code, loser.json()["error_code"]) == (404, "ARTIFACT_NOT_RELEASED")
    assert asked(WINNER_ID, "x").json()["error_code"] == "INVALID_ARTIFACT_TYPE"
    assert asked(uuid_of("race", SEALED)).json()["error_code"] == "AGENT_VERSION_NOT_FOUND"
    assert http.post("/v1/public/artifacts/download-url", content=b"x" * 10_000).status_code == 400
