"""What the pages ask the log goes by an index, whatever its size: plans, not times."""

from __future__ import annotations

import asyncio
from datetime import date

import pytest
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import create_async_engine

from arena.api.board import Board
from arena.api.tail import Tail
from arena.bank.batch import explain_nothing
from arena.chain.keys import generate_signer
from arena.store import statements as sql
from arena.store.connect import engine_url
from arena.store.postgres import PostgresStore
from arena.web.pages import RACES_COMPARED, Pages
from arena.web.values import EpisodeFilter
from tests.arena.log_stand import episode
from tests.arena.tail_stand import Author
from tests.web.episode_stand import NOW_MS, PUBLISHED

ASKED = {
    "the records of a race": (
        sql.RECORDS,
        dict(after_seq=0, kinds=None, race_id=PUBLISHED[0], page=500),
        "race_id = ",
    ),
    "one record": (sql.RECORDS, dict(after_seq=7, kinds=None, race_id=None, page=1), "seq "),
    "what came since": (sql.RECORDS, dict(after_seq=500, kinds=None, race_id=None, page=500), "seq "),
    "the verdicts on a trace": (sql.VERDICTS_ON, dict(body_sha256s=[b"\0" * 32]), "body_sha256"),
    "some traces": (sql.BODIES, dict(body_sha256s=[b"\0" * 32]), "sha256"),
    "a tile of leaves": (sql.LEAVES, dict(after_seq=256, after_day=date.max, to_seq=512, page=1_000), "seq "),
}


RACES = [f"race-{number:06d}" for number in range(1, 11)]


class CountingStore(PostgresStore):
    """Says of which races the records were read."""

    def records(self, validator=None, **asked):
        if asked.get("race_id"):
            self.read.append(asked["race_id"])
        return super().records(validator, **asked)


@pytest.mark.parametrize("name", ASKED)
async def test_no_page_reads_the_whole_log(served, name):
    statement, values, condition = ASKED[name]
    lines = await plan(served.site.author.dsn, statement, values | {"validator": served.site.author.signer.hotkey})
    assert not [line for line in lines if "Seq Scan on" in line], lines
    conditions = [line for line in lines if "Index Cond" in line]
    assert any(condition in line for line in conditions), "\n".join(lines)


async def plan(dsn: str, statement: TextClause, values: dict[str, object]) -> list[str]:
    """The plan of a statement where a table is too large to be read from end to end."""
    engine = create_async_engine(engine_url(dsn))
    try:
        async with engine.connect() as connection:
            await connection.execute(text("set local enable_seqscan = off"))
            bound = text(f"explain (costs off) {statement.text}").bindparams(*statement._bindparams.values())
            return [row[0] for row in await connection.execute(bound, values)]
    finally:
        await engine.dispose()


async def test_a_race_is_read_again_only_when_more_of_it_was_recorded(postgres):
    """However much is recorded of others, and however many are compared."""
    signer = generate_signer()
    author = Author(postgres.dsn_for(signer.hotkey), signer)

    async def write(append, *given: object) -> None:
        await asyncio.to_thread(append, *given)

    for race_id in RACES:
        await write(author.race, race_id, [1, 2])
        await write(author.finish, race_id, [1, 2])
    store = await CountingStore.open(author.dsn, signer.hotkey)
    try:
        picture = Board(store, now_ms=lambda: NOW_MS, refresh_s=0.0)
        pages = Pages(picture, Tail(store, now_ms=lambda: NOW_MS), explain_nothing)
        agent = episode(1)[0][0].subject.agent_version_id

        async def look() -> list[str]:
            store.read = []
            await picture.refresh()
            await pages.front(), await pages.firehose(EpisodeFilter(), ""), await pages.validators()
            await pages.verify(), await pages.agent(agent)
            return store.read

        assert sorted(await look()) == RACES[-RACES_COMPARED:]
        assert await look() == []
        payloads, body = episode(7, race_id="race-000099")
        await write(author.append, payloads, [body])
        assert await look() == []
        payloads, body = episode(3, race_id=RACES[-2])
        await write(author.append, payloads, [body])
        assert await look() == [RACES[-2]]
    finally:
        await store.close()
