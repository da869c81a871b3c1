"""The store against what goes wrong around it: ends of months and days, odd sessions, a full disk, readers that do not
leave, a bucket that shows a validator its own prefix only, a power cut after an append."""

from __future__ import annotations

import asyncio
import http.server
import os
import threading
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from arena.chain.keys import generate_signer, verify
from arena.records.log.sequencer import Sequencer
from arena.records.verify.verification import verify_store
from arena.store.embedded.server import EmbeddedServer
from arena.store.objects import folder_location, open_objects
from arena.store.port import BodyFrame
from arena.store.schema import role_of
from foundation.errors import ArenaError
from tests.arena.log_stand import HOST, Clock, attempt, episode
from tests.arena.test_store_append import BODY, SHA, Log, evaluation
from tests.arena.test_store_roles import as_owner

PARTITIONED = ("record", "body")
FRAME = BodyFrame(body_sha256="ab" * 32, content=b"frame", size=5)


# -- days


async def test_an_append_touches_the_partitions_of_today_only(postgres: EmbeddedServer) -> None:
    connection = await asyncpg.connect(await asyncio.to_thread(postgres.dsn_for, "5today"))
    log = Log(connection, "5today")
    transaction = connection.transaction()
    await transaction.start()
    for content in (evaluation(SHA), evaluation(SHA, race_id="again")):
        end = await log.call(contents=[content], shas=[SHA], sizes=[9], bodies=[BODY])
        assert end[0] != "refused"
    locked = await connection.fetch(
        "select distinct relation::regclass::text as name from pg_locks where pid = pg_backend_pid()"
        " and relation::regclass::text ~ '^arena.(record|body)_[0-9]{8}$' order by 1"
    )
    (today,) = {f"{row['day']:%Y%m%d}" for row in await connection.fetch("select day from arena.record")}
    await transaction.rollback()
    await connection.close()
    assert [row["name"] for row in locked] == [f"arena.body_{today}", f"arena.record_{today}"]


@pytest.mark.parametrize("day", ["2031-12-28", "2032-02-26", "2033-02-25", "2031-10-26", "2031-08-31"])
async def test_days_ahead_follow_each_other_over_ends_of_months_and_years(day: str, postgres: EmbeddedServer) -> None:
    connection = await asyncpg.connect(postgres.owner_dsn)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("set local timezone = 'America/Los_Angeles'; set local datestyle = 'SQL, DMY'")
    for _ in range(2):
        await connection.execute(f"set local role arena_owner; select arena.add_days_ahead('{day}')")
    await connection.execute("set local datestyle = 'ISO'")
    for table in PARTITIONED:
        rows = await connection.fetch(
            "select inhrelid::regclass::text as name, pg_get_expr(c.relpartbound, c.oid) as bounds"
            " from pg_inherits join pg_class c on c.oid = inhrelid"
            f" where inhparent = 'arena.{table}'::regclass and relname >= '{table}_203' order by 1"
        )
        first = date.fromisoformat(day)
        days = [first + timedelta(days=ahead) for ahead in range(8)]
        assert [(row["name"], row["bounds"]) for row in rows] == [
            (f"arena.{table}_{at:%Y%m%d}", f"FOR VALUES FROM ('{at}') TO ('{at + timedelta(days=1)}')") for at in days
        ]
    await transaction.rollback()
    await connection.close()


@pytest.mark.parametrize(
    "setting",
    [
        "datestyle = 'SQL, DMY'",
        "timezone = 'Pacific/Kiritimati'",
        "timezone = 'Pacific/Pago_Pago'",
        "bytea_output = escape",
    ],
)
async def test_a_roles_own_settings_change_neither_the_day_nor_the_bytes(
    setting: str, postgres: EmbeddedServer, open_store
) -> None:
    signer = generate_signer()
    await asyncio.to_thread(postgres.dsn_for, signer.hotkey)
    await as_owner(postgres, f"alter role {role_of(signer.hotkey)} set {setting}")
    store = await open_store(signer.hotkey)
    payloads, body = episode(1)
    await Sequencer(store, signer, Clock(), HOST).append(payloads, [body])
    assert (await verify_store(store, verify)).is_ok
    rows = await as_owner(
        postgres,
        f"select distinct day, (appended_at at time zone 'UTC')::date as arrived from arena.record"
        f" where validator = '{signer.hotkey}'",
    )
    assert all(row["day"] == row["arrived"] for row in rows)


# -- a full disk, readers that do not leave


async def test_a_full_disk_is_a_pause_and_not_a_loss(postgres: EmbeddedServer, open_store) -> None:
    signer = generate_signer()
    store = await open_store(signer.hotkey)
    sequencer = Sequencer(store, signer, Clock(), HOST)
    await sequencer.append([attempt(1)])
    await as_owner(
        postgres,
        "create function public.full_disk() returns trigger language plpgsql as"
        " $$ begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$",
        f"create trigger full_disk before insert on arena.record for each row"
        f" when (new.validator = '{signer.hotkey}') execute function public.full_disk()",
    )
    try:
        payloads, body = episode(2)
        with pytest.raises(ArenaError, match="V2021") as paused:
            await sequencer.append(payloads, [body])
        assert paused.value.entry.is_retryable
        assert (await store.head()).seq == 1
        assert await store.body(body.body_sha256) is None
    finally:
        await as_owner(postgres, "drop trigger full_disk on arena.record", "drop function public.full_disk()")
    assert (await sequencer.append(payloads, [body])).seq == 4
    assert (await verify_store(store, verify)).is_ok


# -- objects


class OwnPrefixOnly(http.server.BaseHTTPRequestHandler):
    """An S3 service with one empty bucket, which shows and takes what stands below `5mine/` and refuses all else."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.query:
            is_own = parse_qs(url.query).get("prefix", [""])[0].startswith("5mine/")
            empty = b"<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>"
            return self._answer(200 if is_own else 403, empty)
        return self._answer(404 if url.path.startswith("/b/5mine/") else 403, b"<Error><Code>NoSuchKey</Code></Error>")

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def narrow_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The location of a bucket of which `5mine` may see its own prefix."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OwnPrefixOnly)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"s3://b?endpoint=http://127.0.0.1:{server.server_port}&region=r"
    server.shutdown()
    server.server_close()


async def test_a_validator_needs_no_right_beyond_its_own_prefix(narrow_bucket: str) -> None:
    objects = open_objects(narrow_bucket)
    assert await objects.get("5mine", [FRAME.body_sha256]) == {}
    assert await objects.stored("5mine", 0) == {}
    await objects.require_there("5mine")
    with pytest.raises(ArenaError, match="V2029"):
        await objects.require_there("5other")


@pytest.mark.parametrize(
    "location", ["s3://key:word@bucket/p", "s3://b/p?secret=word", "s3://b?endpoint=https://k:word@h"]
)
def test_a_secret_in_a_location_is_refused_and_not_repeated(location: str) -> None:
    with pytest.raises(ArenaError, match="V2029") as refused:
        open_objects(location)
    assert "word" not in str(refused.value)


async def test_a_folder_that_can_not_be_written_is_named_before_anything_is_appended(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for place in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(ArenaError, match="V2029"):
            await open_objects(folder_location(place)).require_writable("5mine")
    await open_objects(folder_location(tmp_path / "new" / "one")).require_writable("5mine")


async def test_an_object_its_folder_and_what_leads_to_it_are_synced_before_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def watched(handle: int) -> None:
        fsync(handle)
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.is_relative_to(tmp_path):  # what else runs in this process syncs its own
            synced.append(path)

    monkeypatch.setattr(os, "fsync", watched)
    root = tmp_path / "bodies"
    objects = open_objects(folder_location(root))
    await objects.put("5mine", [FRAME])
    file = root / "5mine" / "ab" / f"{FRAME.body_sha256}.zst"
    assert synced[0] == file
    assert set(synced[1:]) == {file.parent, file.parent.parent, root, tmp_path}
    synced.clear()
    await objects.put("5mine", [BodyFrame(body_sha256="ab" + "cd" * 31, content=b"x", size=1)])
    assert synced[1:] == [file.parent]
    synced.clear()
    await objects.put("5mine", [BodyFrame(body_sha256="cd" * 32, content=b"x", size=1)])
    assert set(synced[1:]) == {root / "5mine" / "cd", root / "5mine"}
