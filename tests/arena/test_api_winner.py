"""The file of the agent at the top, read from another machine: only the one that was committed, and not too early."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from arena.api.client import read_winner
from arena.chain.keys import generate_signer
from arena.records.model import Subject
from arena.store.port import StoredSubmission
from arena.store.postgres import PostgresStore
from arena.submissions.model import agent_version_id
from foundation.canonical import text_hash
from foundation.errors import ArenaError
from tests.arena.log_stand import attempt, release, settlement
from tests.arena.tail_stand import Author, serving

SOURCE = "def agent_main(problem):\n    return ['é']\n"
OPENS_MS = 2_000_000_000_000


@pytest.fixture
def author(postgres, signer) -> Author:
    return Author(postgres.dsn_for(signer.hotkey), signer)


def crown(author: Author, source: str) -> None:
    """A race whose top agent is that of SOURCE, under embargo, with this file in the store."""
    miner = generate_signer().hotkey
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


def test_the_file_of_the_winner_is_read_after_the_embargo(author: Author) -> None:
    crown(author, SOURCE)
    now = [OPENS_MS - 1]
    with serving(author.dsn, now_ms=lambda: now[0]) as server:
        with pytest.raises(ArenaError, match="V2089") as early:
            read_winner(server.address)
        assert "until 2033-05-18T03:33:20+00:00" in early.value.failure.detail
        now[0] = OPENS_MS
        found = read_winner(server.address)
    assert (found.race_id, found.agent.agent.name, found.source.decode()) == ("r1", "best", SOURCE)
    assert found.score_e4 == 9_125


def test_another_file_than_the_committed_one_is_refused(author: Author) -> None:
    crown(author, SOURCE + "# other\n")
    with serving(author.dsn, now_ms=lambda: OPENS_MS) as server, pytest.raises(ArenaError, match="V2084"):
        read_winner(server.address)


def test_without_a_settled_race_there_is_no_winner(author: Author) -> None:
    author.append([attempt(1)])
    with serving(author.dsn) as server, pytest.raises(ArenaError, match="V2082"):
        read_winner(server.address)
    with pytest.raises(ArenaError, match="V2084"):
        read_winner("http://127.0.0.1:9")
