"""The tail: a log's rows from a cursor on, page by page, as the public may see them.

`arena.visibility.rule` alone decides what goes out whole (through `arena.export.selection`, as in an
export); all else is a stub, so that chain, tree and signatures can be checked over every row. A page is read when it is
asked for and not before: between two pages a reader holds a cursor, no rows and no connection, and a client that reads
slowly holds up nobody. A row that was a stub because its race was not released never changes in the stream: the race's
`release` row, which comes later in it, says that `race_rows` now has its rows whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress

import msgspec
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arena.export.assembly import Assembled, assemble, load_page, signed_content
from arena.export.model import Cursor, Request
from arena.export.selection import Selection, releases_of
from arena.records.model import Head, ReleaseRecord, SignedRecord
from arena.store.port import Store
from arena.visibility.rule import embargoed_races, opening_text, released_moment
from foundation.errors import ArenaError
from problems.model import Pool

PAGE_ROWS = 16  # records of one page: with their bodies some hundred kilobytes
PIECE_BYTES = 64 << 10
POLL_S = 1.0
HEARTBEAT_S = 15.0


class TailRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one client asks for. `after`: the number of the last record it has. `limit` 0: no end of its own."""

    validator: str
    after: int = 0
    limit: int = 0
    is_following: bool = False
    pools: tuple[Pool, ...] = ("train",)


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
        """Lines of `LogRow` in pieces of some kilobytes; an empty line whenever a follower waited for long.

        Ends at the log's end (unless following), at the limit, or when `closing` is set. Raises ArenaError V2021.
        """
        after, left = request.after, request.limit
        spoke_at = self._monotonic()
        await self.end(request.validator, is_fresh=True)
        while not self.closing.is_set():
            rows: list[Assembled] = []
            if (await self.end(request.validator)).seq > after:
                wanted = min(PAGE_ROWS, left) if request.limit else PAGE_ROWS
                rows = await self._assemble(request, await self._read(request.validator, after, wanted))
            if rows:
                after = rows[-1].seq
                for piece in _pieces([row.line for row in rows]):
                    yield piece
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

    async def race_rows(self, request: TailRequest, race_id: str) -> AsyncGenerator[bytes]:
        """Lines of every row of a released race after the cursor, in log order. Raises ArenaError V2021, V2082."""
        after, left = request.after, request.limit
        while not self.closing.is_set():
            wanted = min(PAGE_ROWS, left) if request.limit else PAGE_ROWS
            records = await self._read(request.validator, after, wanted, race_id)
            rows = await self._assemble(request, records)
            for piece in _pieces([row.line for row in rows]):
                yield piece
            left -= len(rows)
            if len(rows) < wanted or (request.limit and left <= 0):
                return
            after = rows[-1].seq

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

    async def _read(self, validator: str, after: int, count: int, race_id: str | None = None) -> list[SignedRecord]:
        records: list[SignedRecord] = []
        async for record in self.store.records(validator, after_seq=after, race_id=race_id, page=count):
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


def _pieces(lines: list[bytes]) -> list[bytes]:
    """The lines with their ends, joined into pieces of about PIECE_BYTES."""
    pieces: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        waiting += (line, b"\n")
        size += len(line) + 1
        if size >= PIECE_BYTES:
            pieces.append(b"".join(waiting))
            waiting, size = [], 0
    return [*pieces, b"".join(waiting)] if waiting else pieces


class Places:
    """How many streams may run at once, and how many do."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0


class RowStream(Response):
    """Lines from an iterator of pieces, as long as there is a place for it."""

    def __init__(
        self,
        pieces: AsyncGenerator[bytes],
        places: Places,
        refuse: Callable[[ArenaError], Response],
        media_type: str = "application/x-ndjson",
    ) -> None:
        """`refuse` turns V2083 into an answer."""
        super().__init__(headers={"cache-control": "no-store"}, media_type=media_type)
        del self.headers["content-length"]
        self._pieces = pieces
        self._places = places
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. Returns when it ended or the client left."""
        if self._places.taken >= self._places.limit:
            busy = ArenaError("V2083", f"{self._places.limit} streams")
            await self._refuse(busy)(scope, receive, send)
            return
        self._places.taken += 1
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            leaving.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            self._places.taken -= 1
        if not sending.cancelled() and (failed := sending.exception()):
            if not isinstance(failed, ArenaError):
                raise failed
            structlog.get_logger().warning("tail ended early", code=failed.failure.code, detail=failed.failure.detail)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
