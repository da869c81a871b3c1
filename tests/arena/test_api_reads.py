"""The parts that public reads are made of: cursors, ranges, limits; and what a page says of a race's winner."""

from __future__ import annotations

import asyncio
import hashlib

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
from arena.store.postgres import PostgresStore
from foundation.canonical import text_hash
from foundation.errors import ArenaError
from neurons.cli.race import leaderboard_app
from tests.arena.log_stand import release, settlement
from tests.arena.sealed_stand import LOSER, OPENS_MS, RUNNING, SEALED, WINNER, fill
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
