"""The Postgres store: `arena.store.port.Store` over one validator's own login role.

Promise: every write is one call of one SQL function, so it happens whole or not at all, and what this role may not do
the server refuses (postgres notes, sections 3 and 6). It reads what its login may see: the log and working state of one
hotkey. Holds no state but connections; safe to share between the tasks of one event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, TextClause
from sqlalchemy.ext.asyncio import AsyncEngine

from arena.records.chain import first_head
from arena.records.model import Head, SignedRecord, Stage, Subject
from arena.store import statements as sql
from arena.store.bodies import compress_bodies, require_intact, restore_bodies
from arena.store.connect import coded_errors, open_engine
from arena.store.hold import Hold
from arena.store.port import (
    Frame,
    Lease,
    StoredBody,
    StoredSubmission,
    SubmissionState,
    WeightsResult,
    WorkItem,
)
from arena.store.schema import SCHEMA_REVISION, revision
from problems.canonical import canonical_bytes
from problems.errors import ArenaError

RECORDS_PER_PAGE = 500


class PostgresStore:
    """Everything durable a validator needs, in Postgres."""

    def __init__(self, engine: AsyncEngine, validator: str, hold: Hold | None = None) -> None:
        self._engine = engine
        self._validator = validator
        self._hold = hold

    @classmethod
    async def open(cls, dsn: str, validator: str | None = None, *, is_exclusive: bool = False) -> PostgresStore:
        """Connect as the role the DSN names. `validator` None: whose role it is, or "" for a role that only reads.

        `is_exclusive` holds the hotkey against other exclusive stores until `close`, or until this process dies.
        Raises ArenaError V2021 when the server is away, V2022 when the role belongs to another hotkey, V2023 when the
        schema is not the one this code needs, V2024 when another process holds the hotkey.
        """
        engine = open_engine(dsn)
        try:
            with coded_errors():
                async with engine.connect() as connection:
                    found = await revision(connection)
                    if found != SCHEMA_REVISION:
                        raise ArenaError("V2023", f"found {found or 'no schema'}, need {SCHEMA_REVISION}")
                    hotkey = (await connection.execute(sql.IDENTITY)).scalar()
            if validator is not None and hotkey != validator:
                raise ArenaError("V2022", f"this login belongs to hotkey {hotkey}, not {validator}")
            hold = Hold(dsn, hotkey) if is_exclusive and hotkey else None
            if hold:
                await hold.require()
        except BaseException:
            await engine.dispose()
            raise
        return cls(engine, hotkey or "", hold)

    async def close(self) -> None:
        """Close the connections, and let go of the hotkey."""
        await self._engine.dispose()
        if self._hold:
            await self._hold.release()

    @property
    def validator(self) -> str:
        """The hotkey this store writes for."""
        return self._validator

    # -- the log

    async def head(self, validator: str | None = None) -> Head:
        """The end of a validator's log; `first_head` where it has none."""
        name = self._validator if validator is None else validator
        rows = await self._rows(sql.HEAD, validator=name)
        return Head(rows[0].seq, rows[0].hash.hex()) if rows else first_head(name)

    async def validators(self) -> list[str]:
        """The hotkeys that have a log this login may see, sorted: its own, or all for the owner."""
        return [row.validator for row in await self._rows(sql.VALIDATORS)]

    async def append(
        self, records: Sequence[SignedRecord], bodies: Sequence[StoredBody] = (), finish: Lease | None = None
    ) -> Head:
        """Append in order with `bodies` and the finish of a lease; see the port for what it raises."""
        return await self._append(records, bodies, finish, lease_state="done" if finish else None)

    async def abandon(
        self, lease: Lease, record: SignedRecord, *, delay_ms: int = 0, is_fault: bool = False, is_counted: bool = False
    ) -> Head:
        """Return an unfinished lease of ours to the queue and append its attempt record; see the port."""
        return await self._append(
            [record],
            (),
            lease,
            lease_state="abandoned",
            delay_ms=delay_ms,
            is_fault=is_fault,
            is_counted=is_counted,
        )

    async def _append(
        self, records: Sequence[SignedRecord], bodies: Sequence[StoredBody], lease: Lease | None, **lease_end: object
    ) -> Head:
        _require_one_chain(records, self._validator)
        end = {"delay_ms": 0, "is_fault": False, "is_counted": False, **lease_end}
        rows = await self._write(
            sql.APPEND,
            validator=self._validator,
            seq=records[0].seq,
            prev=bytes.fromhex(records[0].prev),
            contents=[record.content for record in records],
            signatures=[bytes.fromhex(record.signature) for record in records],
            body_sha256s=[bytes.fromhex(body.body_sha256) for body in bodies],
            body_sizes=[len(body.content) for body in bodies],
            bodies=await compress_bodies(bodies),
            fence=lease.fence if lease else None,
            **end,
        )
        return Head(rows[0].head_seq, rows[0].head_hash.hex())

    async def records(
        self, validator: str | None = None, *, after_seq: int = 0, kinds: Sequence[str] = (), race_id: str | None = None
    ) -> AsyncIterator[SignedRecord]:
        """Records of one validator, or of all this login may see (None), in (validator, seq) order, page by page."""
        for name in [validator] if validator is not None else await self.validators():
            last = after_seq
            while True:
                rows = await self._rows(
                    sql.RECORDS,
                    validator=name,
                    after_seq=last,
                    kinds=list(kinds) or None,
                    race_id=race_id,
                    page=RECORDS_PER_PAGE,
                )
                for row in rows:
                    yield _read_record(name, row)
                if len(rows) < RECORDS_PER_PAGE:
                    break
                last = rows[-1].seq

    async def body(self, body_sha256: str, validator: str | None = None) -> StoredBody | None:
        """The body, or None. Raises ArenaError V2050 when its bytes do not have this hash."""
        found = await self.bodies([body_sha256], validator)
        return require_intact(found[0]) if found else None

    async def bodies(self, body_sha256s: Sequence[str], validator: str | None = None) -> list[StoredBody]:
        """Those of the bodies that are stored in a validator's log (None: in our own), their bytes unchecked."""
        rows = await self._rows(
            sql.BODIES,
            validator=self._validator if validator is None else validator,
            body_sha256s=[bytes.fromhex(name) for name in body_sha256s],
        )
        frames = [Frame(body_sha256=row.sha256.hex(), content=row.content, size=row.size) for row in rows]
        return await restore_bodies(frames)

    # -- work

    async def enqueue(self, items: Sequence[WorkItem]) -> int:
        """Add items that are not there yet; returns how many were new."""
        return int(
            await self._write_scalar(
                sql.ENQUEUE,
                validator=self._validator,
                ids=[item.item_id for item in items],
                stages=[item.context.stage for item in items],
                races=[item.context.race_id for item in items],
                agents=[item.subject.agent_version_id for item in items],
                work=[canonical_bytes(item).decode() for item in items],
            )
        )

    async def claim(self, count: int, ttl_ms: int, stages: Sequence[Stage] = ("race", "qualifying")) -> list[Lease]:
        """Lease up to `count` of our items of these stages: race items first, those that faulted before behind the
        others, each in the order it was enqueued; items that still wait are left alone."""
        rows = await self._write(sql.CLAIM, validator=self._validator, stages=list(stages), count=count, ttl_ms=ttl_ms)
        return [self._read_lease(row) for row in rows]

    async def renew(self, lease: Lease, ttl_ms: int) -> Lease | None:
        """The lease with a later expiry, or None when it was lost."""
        expires_ms = await self._write_scalar(sql.RENEW, validator=self._validator, fence=lease.fence, ttl_ms=ttl_ms)
        return None if expires_ms is None else msgspec.structs.replace(lease, expires_ms=int(expires_ms))

    async def expired(self) -> list[Lease]:
        """This validator's leases that ran out or were lost unfinished and have no attempt record yet."""
        return [self._read_lease(row) for row in await self._rows(sql.EXPIRED, validator=self._validator)]

    async def close_items(self, race_id: str, stage: Stage, agent_version_id: str = "") -> int:
        """Close our unfinished items of a race and stage (of one agent, when named), whose leases are lost by it;
        returns how many."""
        return int(
            await self._write_scalar(
                sql.CLOSE_ITEMS,
                validator=self._validator,
                race_id=race_id,
                stage=stage,
                agent_version_id=agent_version_id,
            )
        )

    async def open_items(self, race_id: str, stage: Stage) -> int:
        """Our work items of a race and stage that are neither finished nor closed."""
        return int(await self._scalar(sql.OPEN_ITEMS, validator=self._validator, race_id=race_id, stage=stage))

    # -- submissions, events, weights

    async def put_submission(self, submission: StoredSubmission, source: str) -> None:
        """Store a submission and its source, in place of an earlier one of the same agent version."""
        await self._write(
            sql.PUT_SUBMISSION,
            validator=self._validator,
            name=_utf8(submission.name),
            source=_utf8(source),
            state=submission.state,
            submitted_block=submission.submitted_block,
            report=submission.report,
            **msgspec.structs.asdict(submission.subject),
        )

    async def submissions(self, states: Sequence[SubmissionState] = ()) -> list[StoredSubmission]:
        """Submissions in the order they came, of all states or of these, without their sources."""
        rows = await self._rows(sql.SUBMISSIONS, validator=self._validator, states=list(states) or None)
        return [_read_submission(dict(row._mapping)) for row in rows]

    async def source(self, agent_version_id: str) -> str | None:
        """The agent file of a stored submission, or None."""
        rows = await self._rows(sql.SOURCE, validator=self._validator, agent_version_id=agent_version_id)
        return rows[0].source.decode() if rows else None

    async def set_submission_state(self, agent_version_id: str, state: SubmissionState, report: str = "") -> None:
        """Move a submission; an empty report keeps the last one. Raises ArenaError V2025 when there is none."""
        is_found = await self._write_scalar(
            sql.SET_SUBMISSION_STATE,
            validator=self._validator,
            agent_version_id=agent_version_id,
            state=state,
            report=report,
        )
        if not is_found:
            raise ArenaError("V2025", f"no submission {agent_version_id}")

    async def put_event(self, stream: str, index: int, event: str) -> None:
        """Append event number `index` of a stream. Raises ArenaError V2022 unless it is the next one."""
        await self._write(sql.PUT_EVENT, validator=self._validator, stream=stream, index=index, event=event)

    async def events(self, stream: str) -> list[str]:
        """The events of a stream, in order."""
        return [row.event for row in await self._rows(sql.EVENTS, validator=self._validator, stream=stream)]

    async def put_weights_result(self, result: WeightsResult) -> None:
        """Store one try at setting weights."""
        values = msgspec.structs.asdict(result) | {"uids": list(result.uids), "weights_u16": list(result.weights_u16)}
        await self._write(sql.PUT_WEIGHTS_RESULT, validator=self._validator, **values)

    async def weights_results(self, limit: int = 20) -> list[WeightsResult]:
        """The latest tries, newest first."""
        rows = await self._rows(sql.WEIGHTS_RESULTS, validator=self._validator, limit=limit)
        return [msgspec.convert(dict(row._mapping), WeightsResult) for row in rows]

    # -- one statement, one transaction

    async def _rows(self, statement: TextClause, **values: object) -> Sequence[Row[Any]]:
        with coded_errors():
            async with self._engine.connect() as connection:
                return (await connection.execute(statement, values)).all()

    async def _scalar(self, statement: TextClause, **values: object) -> Any:
        return (await self._rows(statement, **values))[0][0]

    async def _write(self, statement: TextClause, **values: object) -> Sequence[Row[Any]]:
        if self._hold:
            await self._hold.require()
        return await self._rows(statement, **values)

    async def _write_scalar(self, statement: TextClause, **values: object) -> Any:
        return (await self._write(statement, **values))[0][0]

    def _read_lease(self, row: Row[Any]) -> Lease:
        item = msgspec.json.decode(row.work, type=WorkItem)
        return Lease(
            item=item,
            validator=self._validator,
            fence=row.fence,
            expires_ms=row.expires_ms,
            faults=row.faults,
            counted=row.counted,
        )


def _read_record(validator: str, row: Row[Any]) -> SignedRecord:
    return SignedRecord(
        validator=validator,
        seq=row.seq,
        prev=row.prev.hex(),
        content_sha256=row.sha256.hex(),
        signature=row.signature.hex(),
        content=row.content,
    )


def _read_submission(row: Mapping[str, Any]) -> StoredSubmission:
    fields = dict(row) | {"name": row["name"].decode()}
    subject = Subject(**{name: fields.pop(name) for name in Subject.__struct_fields__})
    return StoredSubmission(subject=subject, **fields)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ArenaError("V2025", f"not UTF-8: {error.reason}") from error


def _require_one_chain(records: Sequence[SignedRecord], validator: str) -> None:
    """The server takes the head from the first record and counts on: refuse what it would not see."""
    if not records:
        raise ArenaError("V2025", "there is nothing to append")
    for place, record in enumerate(records):
        if record.validator != validator:
            raise ArenaError("V2022", f"a record of {record.validator} in the store of {validator}")
        if record.seq != records[0].seq + place:
            raise ArenaError("V2025", f"records of one append must follow each other, not {record.seq}")
