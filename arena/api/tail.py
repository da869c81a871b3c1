"""The tail: a log's rows from a cursor on, page by page, as the public may see them.

`arena.visibility.rule` alone decides what goes out whole (through `arena.export.selection`, as in an
export); all else is a stub, so that chain, tree and signatures can be checked over every row. A page is read when it is
asked for and not before: between two pages a reader holds a cursor, no rows and no connection, and a client that reads
slowly holds up nobody. A row that was a stub because its race was not released never changes in the stream: the race's
`release` row, which comes later in it, says that the race's own rows can be had whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, FastAPI
from fastapi import Query as Asked
from starlette.responses import Response

from arena.api.http import CursorError, json_response, refusal, require_known
from arena.exchange.routes import Places, RowStream
from arena.export.assembly import Assembled, assemble, load_page, signed_content
from arena.export.model import Cursor, Request
from arena.export.selection import Selection, releases_of
from arena.records.log import note_sha256
from arena.records.model import Head, ReleaseRecord, SignedRecord
from arena.records.port import Store
from arena.visibility.rule import embargoed_races, opening_text, released_moment
from foundation.errors import ArenaError
from problems.model import Pool

PAGE_ROWS = 16  # records of one page: with their bodies some hundred kilobytes
POLL_S = 1.0
HEARTBEAT_S = 15.0


class TailRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one client asks for. `after`: the number of the last record it has. `limit` 0: no end of its own. `race_id`:
    the rows of that race alone."""

    validator: str
    after: int = 0
    limit: int = 0
    is_following: bool = False
    pools: tuple[Pool, ...] = ("train",)
    race_id: str | None = None


class _TailedLog:
    """What is known of one log: its end, as of a moment, and the releases up to some record."""

    def __init__(self) -> None:
        self.end: Head | None = None
        self.read_at = 0.0
        self.releases: dict[str, ReleaseRecord] = {}
        self.released_to = 0
        self.lock = asyncio.Lock()


class Tail:
    """The logs of one store, for any number of readers. One query a second looks for the end of each log in use."""

    def __init__(
        self,
        store: Store,
        *,
        poll_s: float = POLL_S,
        heartbeat_s: float = HEARTBEAT_S,
        monotonic: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`now_ms`: unix time, by which embargoes end."""
        self.store = store
        self.closing = asyncio.Event()  # set: every stream ends after the page it is at
        self._poll_s = poll_s
        self._heartbeat_s = heartbeat_s
        self._monotonic = monotonic
        self._now_ms = now_ms
        self._logs: dict[str, _TailedLog] = {}
        self._assembling = asyncio.Semaphore(1)  # a validator in the same process keeps the other core

    async def heads(self) -> dict[str, Head]:
        """The end of every log this store's login may read, by hotkey. Raises ArenaError V2021."""
        return {name: await self.end(name) for name in await self._names()}

    async def require_log(self, validator: str) -> str:
        """The hotkey of a log: the one named, or the only one. Raises ArenaError V2081, V2082, V2021."""
        names = await self._names()
        if validator in names:
            return validator
        if validator:
            raise ArenaError("V2082", f"there is no log of {validator}")
        if len(names) != 1:
            raise ArenaError("V2081", f"validator: name one of the {len(names)} logs")
        return names[0]

    async def end(self, validator: str, *, is_fresh: bool = False) -> Head:
        """The end of a log, at most one poll old unless `is_fresh`. Raises ArenaError V2021."""
        log = self._log(validator)
        async with log.lock:
            if log.end is None or is_fresh or self._monotonic() - log.read_at >= self._poll_s:
                log.end = await self.store.head(validator)
                log.read_at = self._monotonic()
            return log.end

    async def rows(self, request: TailRequest) -> AsyncGenerator[bytes]:
        """Lines of `LogRow`, a page in each piece; an empty line whenever a follower waited for long.

        Ends at the log's end (unless following), at the limit, or when `closing` is set. Raises ArenaError V2021.
        """
        after, left = request.after, request.limit
        spoke_at = self._monotonic()
        await self.end(request.validator, is_fresh=True)
        while not self.closing.is_set():
            rows: list[Assembled] = []
            if (await self.end(request.validator)).seq > after:
                wanted = min(PAGE_ROWS, left) if request.limit else PAGE_ROWS
                rows = await self._assemble(request, await self._read(request, after, wanted))
            if rows:
                after = rows[-1].seq
                yield b"".join(row.line + b"\n" for row in rows)
                left -= len(rows)
                spoke_at = self._monotonic()
                if request.limit and left <= 0:
                    return
            elif not request.is_following:
                return
            else:
                if self._monotonic() - spoke_at >= self._heartbeat_s:
                    yield b"\n"
                    spoke_at = self._monotonic()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.closing.wait(), self._poll_s)

    async def require_released(self, validator: str, race_id: str) -> None:
        """Raises ArenaError V2082 unless the race's release is in the log and its embargo over; V2021."""
        await self.end(validator, is_fresh=True)
        release = (await self.releases(validator)).get(race_id)
        if release is None:
            raise ArenaError("V2082", f"race {race_id} has no release in the log of {validator}")
        if released_moment(release, self._now_ms()) != "published":
            raise ArenaError("V2082", f"race {race_id} is under embargo until {opening_text(release)}")

    async def _names(self) -> list[str]:
        names = await self.store.validators()
        return names or [name for name in [self.store.validator] if name]  # a log without a record yet

    async def _read(self, request: TailRequest, after: int, count: int) -> list[SignedRecord]:
        records: list[SignedRecord] = []
        found = self.store.records(request.validator, after_seq=after, race_id=request.race_id, page=count)
        async for record in found:
            records.append(record)
            if len(records) == count:
                break
        return records

    async def _assemble(self, request: TailRequest, records: list[SignedRecord]) -> list[Assembled]:
        """The rows of these records, made beside the event loop."""
        if not records:
            return []
        asked = Request(validator=request.validator, pools=request.pools)
        released = await self.releases(request.validator)
        embargoed = embargoed_races(released, self._now_ms())
        selection = Selection(asked, releases_of(released), Cursor(validator=request.validator), embargoed)
        async with self._assembling:
            page = await load_page(self.store, request.validator, records, selection)
            return await asyncio.to_thread(
                assemble,
                page,
                selection,
                first_seq=records[0].seq,
                last_seq=records[-1].seq,
                row_bytes_max=asked.row_bytes_max,
            )

    async def releases(self, validator: str) -> Mapping[str, ReleaseRecord]:
        """By race: what is released up to the log's known end. Of two releases of one race the first counts."""
        log, end = self._log(validator), await self.end(validator)
        async with log.lock:
            if log.released_to < end.seq:
                async for record in self.store.records(validator, after_seq=log.released_to, kinds=("release",)):
                    content = signed_content(record.content, record.content_sha256)
                    if content and isinstance(content.payload, ReleaseRecord):
                        log.releases.setdefault(content.payload.race_id, content.payload)
                log.released_to = end.seq
            return log.releases

    def _log(self, validator: str) -> _TailedLog:
        return self._logs.setdefault(validator, _TailedLog())


DEFAULT_POOLS: list[Pool] = ["train"]
CHECKPOINTS_MAX = 1_000
SEQ_MAX = 2**53 - 1

Validator = Annotated[
    str, Asked(pattern=r"^[A-Za-z0-9]{0,128}$", description="Whose log; may be left out where there is one.")
]
Race = Annotated[str, Asked(pattern=r"^[A-Za-z0-9_.-]{1,128}$", description="A released race.")]
After = Annotated[int, Asked(ge=0, le=SEQ_MAX, description="Number of the last record the client has.")]
Limit = Annotated[int, Asked(ge=0, le=SEQ_MAX, description="Most rows; 0: no limit.")]
Follow = Annotated[bool, Asked(description="Stay, and stream what is appended.")]
Pools = Annotated[
    list[Pool], Asked(alias="pool", description="Pools that are asked for, by name; repeatable. Default: train.")
]


def add_tail(app: FastAPI, tail: Tail, places: Places) -> None:
    """Add the routes of logs. `places` bounds how many streams run at once."""
    router = APIRouter(dependencies=[Depends(require_known)])
    rows: dict[int | str, dict[str, Any]] = {
        200: {"content": {"application/x-ndjson": {}}, "description": "one LogRow a line"}
    }

    @router.get("/v1/tail", response_class=Response, responses=rows)
    async def read_tail(
        pool: Pools = DEFAULT_POOLS,
        validator: Validator = "",
        after: After = 0,
        follow: Follow = False,
        limit: Limit = 0,
    ) -> Response:
        """Rows of a log after a cursor, in order; with `follow`, and then what is appended, for ever.

        A record whose race is not released is a stub (`withheld`), as is one of a pool that was not named. An empty
        line every 15 s says that the server is there. The cursor is the number (`seq`) of the last row received.
        """
        name = await tail.require_log(validator)
        head = await tail.end(name, is_fresh=True)
        if after > head.seq:
            raise CursorError(after, head.seq)
        asked = TailRequest(
            validator=name, after=after, limit=limit, is_following=follow, pools=tuple(dict.fromkeys(pool))
        )
        return RowStream(tail.rows(asked), places, refusal)

    @router.get("/v1/records", response_class=Response, responses=rows)
    async def read_race(
        race: Race,
        pool: Pools = DEFAULT_POOLS,
        validator: Validator = "",
        after: After = 0,
        limit: Limit = 0,
    ) -> Response:
        """The rows of one released race, in log order: how a follower gets whole what it got as stubs."""
        name = await tail.require_log(validator)
        await tail.require_released(name, race)
        pools = tuple(dict.fromkeys(pool))
        asked = TailRequest(validator=name, after=after, limit=limit, pools=pools, race_id=race)
        return RowStream(tail.rows(asked), places, refusal)

    @router.get("/v1/head", response_class=Response)
    async def read_heads() -> Response:
        """Where each log ends: validator, seq, and the chain's hash there."""
        heads = await tail.heads()
        return json_response([{"validator": name, "seq": head.seq, "hash": head.hash} for name, head in heads.items()])

    @router.get("/v1/checkpoints", response_class=Response)
    async def read_checkpoints(validator: Validator = "", after_size: After = 0) -> Response:
        """Signed checkpoints of a log by size, at most a thousand: the note, its sha256 and the block that holds it."""
        name = await tail.require_log(validator)
        found = (await tail.store.checkpoints(name, after_size=after_size))[:CHECKPOINTS_MAX]
        return json_response(
            [msgspec.structs.asdict(point) | {"note_sha256": note_sha256(point.note)} for point in found]
        )

    @router.get("/v1/health", response_class=Response)
    async def read_health() -> Response:
        """200 while the store answers."""
        await tail.store.validators()
        return json_response({"status": "ok"})

    app.include_router(router)
