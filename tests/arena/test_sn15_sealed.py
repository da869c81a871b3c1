"""Races through the published SN15 API at the door, what stays sealed there, and that it answers as it documents."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from arena.api.board import Board
from arena.chain.keys import generate_signer, keypair_signer
from arena.door.service import Desk
from arena.race.machine import stream_of
from arena.records.model import Subject
from arena.records.port import StoredSubmission
from arena.records.sequencer import Sequencer
from arena.sn15.picture import Picture, version_uuid
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from tests.arena.door_stand import AGENT, WIDE_RULES, Stand, serving, unix_ms
from tests.arena.log_stand import release
from tests.arena.race_stand import RACE
from tests.arena.race_world import finished
from tests.arena.sealed_stand import OPENS_MS, SECRETS, fill
from tests.arena.sn15_stand import LegacyAuth, LegacyMiner, open_to_commitments
from tests.arena.tail_stand import Author
from tests.arena.test_api_sealed import Crawler


@pytest.fixture
def stand(postgres: EmbeddedServer, tmp_path: Path) -> Stand:
    made = Stand(tmp_path, "", f"//Seal{generate_signer().hotkey[-8:]}")
    made.dsn = postgres.dsn_for(made.validator)
    return made


async def test_a_race_shows_counts_until_it_is_settled_and_then_the_rank(
    store: PostgresStore, sequencer: Sequencer, stand: Stand
) -> None:
    agent, hotkey = "v-a", "hk-a"  # as the race's world names its first agent
    await LegacyMiner(stand).register()
    subject = Subject(agent_version_id=agent, miner_hotkey=hotkey, agent_sha256="b2", commitment_block=7)
    stored = StoredSubmission(subject=subject, name="my-agent", state="qualified")
    await store.put_submission(stored, AGENT)
    stages = []

    async def look(now_ms: int) -> None:
        board = Board(store, now_ms=lambda: now_ms)
        desk = Desk(store, stand.chain, stand.policy, board)
        await board.refresh()
        picture = Picture(board)
        (status,) = await desk.statuses(hotkey)
        one = picture.own(status)
        assert one["state"] == "ELIGIBLE"
        (view,) = board.races()
        race, field = picture.race_public(view), picture.qualifiers(view)
        ranks = [each["race_rank"] for each in field if each["agent_version_id"] == version_uuid(agent)]
        is_known = race["status"] == "RACE_COMPLETE"
        scores = (one["race_score"], picture.status(picture.rows[agent])["race_score"], race["winner_score"])
        assert [score is not None for score in scores] == [is_known] * 3
        assert one["is_active_qualifier"] == (not is_known)
        assert (picture.own_agents([status], now_ms)["racing_agent_version_id"] is not None) == (
            race["status"] == "RACE_RUNNING"
        )
        assert ranks == ([] if not field else [1] if is_known else [None])
        stages.append(race["status"])

    for index, event in enumerate(finished().stream):
        await store.put_event(stream_of(RACE), index, event)
        await look(0 if index == 0 else unix_ms())
    await sequencer.append([release(RACE, (1,))], [])
    await look(unix_ms())
    assert list(dict.fromkeys(stages)) == ["QUALIFYING_OPEN", "RACE_RUNNING", "RACE_COMPLETE"]


@pytest.fixture(scope="module")
def sealed(postgres: EmbeddedServer) -> tuple[str, Author, int]:
    uri = f"//Sealed{generate_signer().hotkey[-8:]}"
    author = Author(postgres.dsn_for(keypair_signer(uri).hotkey), keypair_signer(uri))
    return uri, author, fill(author)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_nothing_sealed_is_in_any_answer_of_the_door(
    sealed: tuple[str, Author, int], tmp_path: Path, moment: str
) -> None:
    """The crawler of the public reads, signing as a registered miner, over every route of these at the door."""
    uri, author, size = sealed
    stand = open_to_commitments(Stand(tmp_path, author.dsn, uri))
    stand.refresh_s = 60.0
    stand.now_ms = lambda: OPENS_MS - 1 if moment == "before" else OPENS_MS
    with serving(stand, WIDE_RULES):
        miner = asyncio.run(LegacyMiner(stand).register())
        auth = LegacyAuth(miner.signer)
        with httpx2.Client(base_url=stand.address, auth=auth, timeout=30) as http:
            crawler = Crawler(http, stand.validator, size, "/v1/public/openapi.json")
            crawler.crawl()
            links = [answer.json().get("download_url") for _, answer in crawler.answers[:6]]
            crawler.answers += [(link, http.get(link)) for link in links if link]
    assert len(crawler.asked) > 80
    sealed_now = SECRETS.never + (() if moment == "after" else SECRETS.after) + SECRETS.named
    assert [each for each in sealed_now if crawler.holders(each)] == []
    is_open = bool(crawler.holders(b"SOURCE-OF-THE-WINNER"))
    assert is_open == (moment == "after")
    for target, answer in crawler.answers:
        if answer.status_code >= 400 and answer.status_code != 416 and answer.content:  # that API knows no ranges
            assert set(answer.json()) <= {"detail", "error_code"}, target
