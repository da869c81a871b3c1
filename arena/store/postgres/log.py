"""The log of a store: records, the bodies they name, and signed checkpoints, over one validator's own login role.

An append is one call of one SQL function, so it happens whole or not at all; pages are read by key, so a
reader holds no transaction open. It reads what its login may see.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import Row, TextClause

from arena.records.log.filing import Filing
from arena.records.log.hash_chain import first_head
from arena.records.model import Head, SignedRecord
from arena.store.bodies import compress_bodies, require_intact, restore_bodies
from arena.store.port import RECORDS_PER_PAGE, BodyFrame, FiledRecord, Lease, LogLeaf, StoredBody, StoredCheckpoint
from arena.store.postgres import statements as sql
from arena.store.postgres.connect import Session
from foundation.errors import ArenaError

if TYPE_CHECKING:
    from arena.store.objects import BodyObjects

LEAVES_PER_PAGE = 5_000


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one log. `body_bytes`: before compression; `checkpoint_size`, `anchored_size`: of the largest."""

    validator: str
    seq: int
    hash: str
    bodies: int
    bodies_elsewhere: int  # of them, in the object store
    body_bytes: int
    checkpoints: int
    checkpoint_size: int
    anchored_size: int
    items_open: int
    items_leased: int


class PostgresLog:
    """The log of one validator, and those of others that its login may read."""

    def __init__(self, session: Session, validator: str, objects: BodyObjects | None = None) -> None:
        self._session = session
        self._validator = validator
        self._objects = objects

    @property
    def validator(self) -> str:
        """The hotkey this store writes for."""
        return self._validator

    async def close(self) -> None:
        """Close the connections, and let go of the hotkey."""
        await self._session.close()

    async def head(self, validator: str | None = None) -> Head:
        """The end of a validator's log; `first_head` where it has none."""
        name = self._validator if validator is None else validator
        rows = await self._session.rows(sql.HEAD, validator=name)
        return Head(rows[0].seq, rows[0].hash.hex()) if rows else first_head(name)

    async def validators(self) -> list[str]:
        """The hotkeys that have a log this login may see, sorted: its own, or all for the owner. A head, a record or a
        checkpoint is enough."""
        return [row.validator for row in await self._session.rows(sql.VALIDATORS)]

    async def append(
        self, records: Sequence[SignedRecord], bodies: Sequence[StoredBody] = (), finish: Lease | None = None
    ) -> Head:
        """Append in order with `bodies` and the finish of a lease; see the port for what it raises."""
        return await self._append(records, bodies, finish, lease_state="done" if finish else None)

    async def abandon(
        self,
        lease: Lease,
        record: SignedRecord,
        *,
        delay_ms: int = 0,
        is_fault: bool = False,
        is_counted: bool = False,
        is_refused: bool = False,
    ) -> Head:
        """Return an unfinished lease of ours to the queue and append its attempt record; see the port."""
        return await self._append(
            [record],
            (),
            lease,
            lease_state="refused" if is_refused else "abandoned",
            delay_ms=delay_ms,
            is_fault=is_fault,
            is_counted=is_counted,
        )

    async def _append(
        self, records: Sequence[SignedRecord], bodies: Sequence[StoredBody], lease: Lease | None, **lease_end: object
    ) -> Head:
        if not records:
            raise ArenaError("V2025", "there is nothing to append")
        for place, record in enumerate(records):  # the server takes the head from the first one and counts on
            if record.validator != self._validator:
                raise ArenaError("V2022", f"a record of {record.validator} in the store of {self._validator}")
            if record.seq != records[0].seq + place:
                raise ArenaError("V2025", f"records of one append must follow each other, not {record.seq}")
        frames = await compress_bodies(bodies)
        if self._objects and frames:  # durable before any row says so; an append that fails leaves harmless objects
            await self._objects.put(self._validator, frames)
        end = {"delay_ms": 0, "is_fault": False, "is_counted": False, **lease_end}
        rows = await self._session.write(
            sql.APPEND,
            validator=self._validator,
            seq=records[0].seq,
            prev=bytes.fromhex(records[0].prev),
            contents=[record.content for record in records],
            signatures=[bytes.fromhex(record.signature) for record in records],
            body_sha256s=[bytes.fromhex(frame.body_sha256) for frame in frames],
            body_sizes=[frame.size for frame in frames],
            bodies=[None if self._objects else frame.content for frame in frames],
            fence=lease.fence if lease else None,
            **end,
        )
        return Head(rows[0].head_seq, rows[0].head_hash.hex())

    async def records(
        self,
        validator: str | None = None,
        *,
        after_seq: int = 0,
        kinds: Sequence[str] = (),
        race_id: str | None = None,
        page: int = RECORDS_PER_PAGE,
    ) -> AsyncIterator[SignedRecord]:
        """Records of one validator, or of all this login may see (None), in (validator, seq) order, page by page."""
        for name in [validator] if validator is not None else await self.validators():
            last = after_seq
            while True:
                rows = await self._session.rows(
                    sql.RECORDS,
                    validator=name,
                    after_seq=last,
                    kinds=list(kinds) or None,
                    race_id=race_id,
                    page=page,
                )
                for row in rows:
                    yield _read_record(name, row)
                if len(rows) < page:
                    break
                last = rows[-1].seq

    async def filed_records(
        self, validator: str, *, after_seq: int = 0, page: int = RECORDS_PER_PAGE
    ) -> AsyncIterator[FiledRecord]:
        """Every row of one log behind `after_seq`, page by page, with what it is filed under."""
        async for row in self._rows_behind(sql.FILED_RECORDS, after_seq, page, validator=validator):
            filing = Filing(row.kind, row.race_id, row.body_sha256.hex() if row.body_sha256 else "")
            yield FiledRecord(**_envelope(validator, row), filing=filing, is_dated=row.is_dated)

    async def body(self, body_sha256: str, validator: str | None = None) -> StoredBody | None:
        """The body, or None. Raises ArenaError V2050 when its bytes do not have this hash."""
        found = await self.bodies([body_sha256], validator)
        return require_intact(found[0]) if found else None

    async def bodies(self, body_sha256s: Sequence[str], validator: str | None = None) -> list[StoredBody]:
        """Those of the bodies that are stored in a validator's log (None: in our own), their bytes unchecked."""
        return await restore_bodies(await self.frames(body_sha256s, validator))

    async def frames(self, body_sha256s: Sequence[str], validator: str | None = None) -> list[BodyFrame]:
        """The same bodies as they are stored; none for one whose object is missing.

        Raises ArenaError V2029 when they lie in an object store and this store was opened without one.
        """
        return await self._frames(sql.BODIES, body_sha256s, validator)

    async def every_frame(self, body_sha256s: Sequence[str], validator: str | None = None) -> list[BodyFrame]:
        """The same, and every copy of a body that was stored on several days. Raises as `frames`."""
        return await self._frames(sql.EVERY_BODY, body_sha256s, validator)

    async def _frames(self, query: TextClause, body_sha256s: Sequence[str], validator: str | None) -> list[BodyFrame]:
        name = self._validator if validator is None else validator
        rows = await self._session.rows(
            query, validator=name, body_sha256s=[bytes.fromhex(sha256) for sha256 in body_sha256s]
        )
        elsewhere = sorted({row.sha256.hex() for row in rows if row.content is None})
        if elsewhere and self._objects is None:
            raise ArenaError("V2029", f"{len(elsewhere)} bodies of {name} lie in an object store, and none is named")
        objects = await self._objects.get(name, elsewhere) if elsewhere and self._objects else {}
        frames = []
        for row in rows:
            content = objects.get(row.sha256.hex()) if row.content is None else row.content
            if content is not None:
                frames.append(BodyFrame(body_sha256=row.sha256.hex(), content=content, size=row.size))
        return frames

    async def bodies_elsewhere(self, validator: str, first_byte: int) -> set[str]:
        """The bodies of a validator that lie in its object store, of those whose sha256 begins with this byte."""
        rows = await self._session.rows(sql.BODIES_ELSEWHERE, validator=validator, **sql.shard_bounds(first_byte))
        return {row.sha256.hex() for row in rows}

    async def some_bodies_elsewhere(self, count: int) -> list[str]:
        """Up to `count` of our bodies that lie in an object store."""
        rows = await self._session.rows(sql.SOME_ELSEWHERE, validator=self._validator, count=count)
        return [row.sha256.hex() for row in rows]

    async def verdicts_on(self, body_sha256s: Sequence[str], validator: str | None = None) -> list[SignedRecord]:
        """Every verdict record of a validator (None: ours) on these bodies, in log order."""
        name = self._validator if validator is None else validator
        rows = await self._session.rows(
            sql.VERDICTS_ON, validator=name, body_sha256s=[bytes.fromhex(sha256) for sha256 in body_sha256s]
        )
        return [_read_record(name, row) for row in rows]

    async def leaves(self, validator: str, *, after_seq: int = 0, to_seq: int | None = None) -> AsyncIterator[LogLeaf]:
        """The leaves of one log in order, page by page."""
        async for row in self._rows_behind(sql.LEAVES, after_seq, LEAVES_PER_PAGE, validator=validator, to_seq=to_seq):
            yield LogLeaf(seq=row.seq, prev=row.prev.hex(), content_sha256=row.sha256.hex())

    async def _rows_behind(
        self, query: TextClause, after_seq: int, page: int, **values: object
    ) -> AsyncIterator[Row[Any]]:
        """Rows of a log behind a record, page by page in the order of number and day."""
        last_seq, last_day = after_seq, date.max
        while True:
            rows = await self._session.rows(query, after_seq=last_seq, after_day=last_day, page=page, **values)
            for row in rows:
                yield row
            if len(rows) < page:
                return
            last_seq, last_day = rows[-1].seq, rows[-1].day

    async def statuses(self) -> list[LogStatus]:
        """What each log that this login may read holds, by hotkey. Counts rows: seconds on a large log."""
        return [LogStatus(**row._mapping) for row in await self._session.rows(sql.LOG_STATUS)]

    # -- checkpoints

    async def put_checkpoint(self, checkpoint: StoredCheckpoint) -> None:
        """Keep a signed checkpoint of this hotkey; see the port. Raises ArenaError V2022 for another hotkey's, or when
        another note of that size is kept."""
        if checkpoint.validator != self._validator:
            raise ArenaError("V2022", f"a checkpoint of {checkpoint.validator} in the store of {self._validator}")
        await self._session.write(
            sql.PUT_CHECKPOINT,
            validator=self._validator,
            size=checkpoint.size,
            note=checkpoint.note,
            signed_ms=checkpoint.signed_ms,
        )

    async def put_anchor(self, size: int, note_sha256: str, block: int) -> None:
        """Say in which finalized block the chain holds the checkpoint of that size; see the port."""
        await self._session.write(
            sql.PUT_ANCHOR, validator=self._validator, size=size, note_sha256=bytes.fromhex(note_sha256), block=block
        )

    async def checkpoints(self, validator: str | None = None, *, after_size: int = 0) -> list[StoredCheckpoint]:
        """The checkpoints of a validator (None: ours), by size."""
        name = self._validator if validator is None else validator
        rows = await self._session.rows(sql.CHECKPOINTS, validator=name, after_size=after_size)
        return [StoredCheckpoint(validator=name, **row._mapping) for row in rows]


def _read_record(validator: str, row: Row[Any]) -> SignedRecord:
    return SignedRecord(**_envelope(validator, row))


def _envelope(validator: str, row: Row[Any]) -> dict[str, Any]:
    return {
        "validator": validator,
        "seq": row.seq,
        "prev": row.prev.hex(),
        "content_sha256": row.sha256.hex(),
        "signature": row.signature.hex(),
        "content": row.content,
    }
