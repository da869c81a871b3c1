"""Old days of a store moved into its object store: bodies, and the contents of records in archives.

An archive is an object beside the bodies: a zstd frame over the contents of consecutive records of one validator, named
by its sha256. What a live rule reads stays in Postgres: gate records, settlements, releases, and every record of a race
that is not released. The rest is read from the object store as if it stood there still, so verification, exports, peers
and replays are what they were. A day is moved in one transaction, after its objects were written and read back: a run
that ends early has lost nothing, and the next one goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import date, timedelta

import asyncpg
import msgspec
import zstandard

from arena.records.body import compress_bodies, restore_frame
from arena.records.model import BodyFrame, StoredBody
from arena.store.connect import Row, owner_transaction
from arena.store.objects import BodyObjects
from arena.store.schema import SCHEMA_REVISION, revision
from foundation.errors import ArenaError
from foundation.long_work import Progress, no_progress

ARCHIVE_BYTES = 1 << 20  # of contents in one archive, before compression
ROWS_PER_PAGE = 1_000
FRAMES_PER_PAGE = 64
DAYS_IN_USE = 3  # the server's own limit, too: what an append of these days may still look at

_DAYS = (
    "select day, sum(bytes) as bytes from (select day, octet_length(content) as bytes from arena.record"
    " union all select day, octet_length(content) from arena.body) as held where day < $1 group by day order by day"
)
_BODIES = (
    "select validator, sha256, size, content from arena.body where day = $1 and content is not null"
    " and (validator, sha256) > ($2, $3) order by validator, sha256 limit $4"
)
_RECORDS = (
    "select validator, seq, content from arena.record r where day = $1 and content is not null"
    " and kind in ('attempt', 'evaluation', 'verdict') and (race_id = '' or exists (select from arena.record o"
    " where o.validator = r.validator and o.race_id = r.race_id and o.kind = 'release'))"
    " and (validator, seq) > ($2, $3) order by validator, seq limit $4"
)
# The days before today are whole. A validator's login may ask for sizes, and read no partition.
SIZE = (
    "select pg_database_size(current_database()) as bytes, coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint as"
    " week from pg_class c, generate_series(1, 7) as ago, unnest(array['record_', 'body_']) as part"
    " where c.relnamespace = 'arena'::regnamespace and c.relname = part || to_char(current_date - ago, 'YYYYMMDD')"
)
_MOVE = "select arena.archive_day($1, $2, $3, $4)"


class ArchiveResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was moved out of the database."""

    days: tuple[str, ...]
    records: int
    bodies: int
    objects: str  # the location


async def read_contents(objects: BodyObjects | None, validator: str, rows: Sequence[Row]) -> list[bytes]:
    """The content of each record row of a validator, from its archive where it lies in one; b"" where that is missing
    or damaged: no record has that, and whoever checks or decodes it says so. Raises as `read_frames`."""
    names = {row.archive_sha256.hex() for row in rows if row.archive_sha256}
    contents: dict[bytes, bytes] = {}
    for name, frame in (await read_frames(objects, validator, names)).items():
        contents |= _unpacked(name, frame)
    return [contents.get(row.sha256, b"") if row.archive_sha256 else row.content for row in rows]


async def read_frames(objects: BodyObjects | None, validator: str, names: Collection[str]) -> dict[str, bytes]:
    """The frames of a validator that are in its object store, by name. Raises ArenaError V2028 when that is away, V2029
    when it refuses or none is named."""
    if not names:
        return {}
    if objects is None:
        raise ArenaError("V2029", f"{len(names)} objects of {validator} lie in an object store, and none is named")
    return await objects.get(validator, sorted(names))


def _unpacked(sha256: str, frame: bytes) -> dict[bytes, bytes]:
    """The contents of an archive by their sha256; none where the frame is not the archive of this name."""
    with contextlib.suppress(zstandard.ZstdError, msgspec.DecodeError):
        content = restore_frame(frame, zstandard.frame_content_size(frame))
        if hashlib.sha256(content).hexdigest() == sha256:
            contents = msgspec.msgpack.decode(content, type=list[bytes])
            return {hashlib.sha256(each).digest(): each for each in contents}
    return {}


async def archive(
    owner_dsn: str, before: date, objects: BodyObjects, *, today: date, progress: Progress = no_progress
) -> ArchiveResult:
    """Move what arrived before a day into the object store, one day after the other. Days are UTC.

    Raises ArenaError V2021 when the server is away, V2023 for another schema, V2025 for a day that is still in use,
    V2028 and V2029 for the object store, V2056 when it does not give back what it took.
    """
    limit = today - timedelta(days=DAYS_IN_USE)
    if before > limit:
        raise ArenaError("V2025", f"days from {limit} on are still in use", fix=f"give --before {limit} or earlier")
    async with owner_transaction(owner_dsn) as connection:
        if (found := await revision(connection)) != SCHEMA_REVISION:
            raise ArenaError("V2023", f"found {found or 'no schema'}, need {SCHEMA_REVISION}")
        days = [row.day for row in await connection.fetch(_DAYS, before) if row.bytes]
    moved, records, bodies = [], 0, 0
    for place, day in enumerate(days):
        async with owner_transaction(owner_dsn) as connection:
            named = [row async for row in _archived(connection, day, objects)]
            frames = await _carry_bodies(connection, day, objects)
            if named or frames:
                await connection.execute("set local role arena_owner")
                columns = zip(*named, strict=True) if named else ((), (), ())
                await connection.execute(_MOVE, day, *columns)
                moved.append(day.isoformat())
        records, bodies = records + len(named), bodies + frames
        progress("archive", place + 1, len(days))
    return ArchiveResult(days=tuple(moved), records=records, bodies=bodies, objects=objects.location)


async def _archived(
    connection: asyncpg.Connection, day: date, objects: BodyObjects
) -> AsyncIterator[tuple[str, int, bytes]]:
    """Write the archives of a day; yields validator, number and archive of each record that one holds."""
    waiting, size = list[Row](), 0
    last = ("", 0)
    while rows := await connection.fetch(_RECORDS, day, *last, ROWS_PER_PAGE):
        last = (rows[-1].validator, rows[-1].seq)
        for row in rows:
            is_full = size + len(row.content) > ARCHIVE_BYTES
            if waiting and (is_full or row.validator != waiting[0].validator):
                for named in await _written(waiting, objects):
                    yield named
                waiting, size = [], 0
            waiting.append(row)
            size += len(row.content)
    for named in await _written(waiting, objects):
        yield named


async def _written(rows: Sequence[Row], objects: BodyObjects) -> list[tuple[str, int, bytes]]:
    if not rows:
        return []
    content = msgspec.msgpack.encode([row.content for row in rows])
    name = hashlib.sha256(content)
    frames = await compress_bodies([StoredBody(body_sha256=name.hexdigest(), content=content)])
    await _put(objects, rows[0].validator, frames)
    return [(row.validator, row.seq, name.digest()) for row in rows]


async def _carry_bodies(connection: asyncpg.Connection, day: date, objects: BodyObjects) -> int:
    """Write the bodies of a day to the object store; returns how many."""
    carried, last = 0, ("", b"")
    while rows := await connection.fetch(_BODIES, day, *last, FRAMES_PER_PAGE):
        last = (rows[-1].validator, rows[-1].sha256)
        for validator in sorted({row.validator for row in rows}):
            mine = (row for row in rows if row.validator == validator)
            frames = [BodyFrame(body_sha256=row.sha256.hex(), content=row.content, size=row.size) for row in mine]
            await _put(objects, validator, frames)
        carried += len(rows)
    return carried


async def _put(objects: BodyObjects, validator: str, frames: Sequence[BodyFrame]) -> None:
    """Write frames, and read them back: what the database drops afterwards has no other copy."""
    await objects.put(validator, frames)
    found = await objects.get(validator, [frame.body_sha256 for frame in frames])
    if wrong := [frame.body_sha256 for frame in frames if found.get(frame.body_sha256) != frame.content]:
        raise ArenaError("V2056", f"{objects.location} does not give back {wrong[0]} of {validator}")
