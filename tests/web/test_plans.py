"""What the pages ask the log goes by an index, whatever its size: plans, not times."""

from __future__ import annotations

from datetime import date

import pytest
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import create_async_engine

from arena.store.postgres import statements as sql
from arena.store.postgres.connect import engine_url
from tests.web.episode_stand import PUBLISHED

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
