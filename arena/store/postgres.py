"""The log of a store: records, the bodies they name, and signed checkpoints, over one validator's own login role.

An append is one call of one SQL function, so it happens whole or not at all; pages are read by key, so a
reader holds no transaction open. It reads what its login may see.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from sqlalchemy import Row, TextClause

from arena.records.body import compress_bodies, restore_frame
from arena.records.log import first_head
from arena.records.model import (
    BodyFrame,
    Entry,
    Envelope,
    Filing,
    Head,
    SignedRecord,
    Stage,
    StoredBody,
    StoredCheckpoint,
    Subject,
)
from arena.records.port import (
    GATED,
    RECORDS_PER_PAGE,
    AgreedStanding,
    AttemptUsage,
    HotkeyState,
    ItemCount,
    Lease,
    Requeue,
    StoredSource,
    StoredSubmission,
    SubmissionState,
    UsageTotal,
    WeightsResult,
    WorkItem,
)
from arena.store import statements as sql
from arena.store.connect import Hold, Session, coded_errors, open_engine
from arena.store.schema import SCHEMA_REVISION, revision
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError, Failure

if TYPE_CHECKING:
    from arena.store.objects import BodyObjects


LEAVES_PER_PAGE = 5_000


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
        return await self._append(records, bodies, finish, "done" if finish else None, Requeue())

    async def abandon(self, lease: Lease, record: SignedRecord, requeue: Requeue) -> Head:
        """Return an unfinished lease of ours to the queue and append its attempt record; see the port."""
        lease_state = "refused" if requeue.is_refused else "abandoned"
        return await self._append([record], (), lease, lease_state, requeue)

    async def _append(
        self,
        records: Sequence[SignedRecord],
        bodies: Sequence[StoredBody],
        lease: Lease | None,
        lease_state: str | None,
        requeue: Requeue,
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
            lease_state=lease_state,
            delay_ms=requeue.delay_ms,
            is_fault=requeue.is_fault,
            is_counted=requeue.is_counted,
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
    ) -> AsyncIterator[Entry]:
        """Every row of one log behind `after_seq`, page by page, with what it is filed under."""
        async for row in self._rows_behind(sql.FILED_RECORDS, after_seq, page, validator=validator):
            filing = Filing(row.kind, row.race_id, row.body_sha256.hex() if row.body_sha256 else "")
            yield Entry(**_envelope(validator, row), content=row.content, filing=filing, is_dated=row.is_dated)

    async def body(self, body_sha256: str, validator: str | None = None) -> StoredBody | None:
        """The body, or None. Raises ArenaError V2050 when its bytes do not have this hash."""
        for frame in await self.frames([body_sha256], validator):
            content = restore_frame(frame.content, frame.size)
            if hashlib.sha256(content).hexdigest() != body_sha256:
                raise ArenaError("V2050", f"body {body_sha256} does not have this hash")
            return StoredBody(body_sha256=body_sha256, content=content)
        return None

    async def frames(self, body_sha256s: Sequence[str], validator: str | None = None) -> list[BodyFrame]:
        """Those of a validator's bodies (None: of our own) that are stored, as they are, every copy of a body that was
        stored on several days; none for one whose object is missing.

        Raises ArenaError V2029 when they lie in an object store and this store was opened without one.
        """
        name = self._validator if validator is None else validator
        rows = await self._session.rows(
            sql.BODIES,
            validator=name,
            body_sha256s=[bytes.fromhex(sha256) for sha256 in body_sha256s],
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

    async def leaves(self, validator: str, *, after_seq: int = 0, to_seq: int | None = None) -> AsyncIterator[Envelope]:
        """The leaves of one log in order, page by page."""
        async for row in self._rows_behind(sql.LEAVES, after_seq, LEAVES_PER_PAGE, validator=validator, to_seq=to_seq):
            yield Envelope(**_envelope(validator, row))

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
    return SignedRecord(**_envelope(validator, row), content=row.content)


def _envelope(validator: str, row: Row[Any]) -> dict[str, Any]:
    return {
        "validator": validator,
        "seq": row.seq,
        "prev": row.prev.hex(),
        "content_sha256": row.sha256.hex(),
        "signature": row.signature.hex(),
    }


SOURCES_PER_PAGE = 16  # of up to 1 MB each


class PostgresStore(PostgresLog):
    """Everything durable a validator needs, in Postgres: the log, and the working state beside it."""

    @classmethod
    async def open(
        cls,
        dsn: str,
        validator: str | None = None,
        *,
        is_exclusive: bool = False,
        objects: BodyObjects | None = None,
    ) -> PostgresStore:
        """Connect as the role the DSN names. `validator` None: whose role it is, or "" for a role that only reads.

        `is_exclusive` holds the hotkey against other exclusive stores until `close`, or until this process dies.
        `objects`: where bodies are written, and those found that are not in Postgres; None: in Postgres.
        Raises ArenaError V2021 when the server is away, V2022 when the role belongs to another hotkey, V2023 when the
        schema is not the one this code needs, V2024 when another process holds the hotkey.
        """
        engine = open_engine(dsn)
        session = Session(engine)
        try:
            with coded_errors():
                async with engine.connect() as connection:
                    found = await revision(connection)
                    if found != SCHEMA_REVISION:
                        raise ArenaError("V2023", f"found {found or 'no schema'}, need {SCHEMA_REVISION}")
                    hotkey = (await connection.execute(sql.IDENTITY)).scalar()
            if validator is not None and hotkey != validator:
                raise ArenaError("V2022", f"this login belongs to hotkey {hotkey}, not {validator}")
            if is_exclusive and hotkey:
                session = Session(engine, Hold(dsn, hotkey))
                await session.require()
        except BaseException:
            await session.close()
            raise
        return cls(session, hotkey or "", objects)

    # -- work

    async def enqueue(self, items: Sequence[WorkItem]) -> int:
        """Add items that are not there yet; returns how many were new."""
        return int(
            await self._session.write_scalar(
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
        rows = await self._session.write(
            sql.CLAIM, validator=self._validator, stages=list(stages), count=count, ttl_ms=ttl_ms
        )
        return [self._read_lease(row) for row in rows]

    async def renew(self, lease: Lease, ttl_ms: int) -> Lease | None:
        """The lease with a later expiry, or None when it was lost."""
        expires_ms = await self._session.write_scalar(
            sql.RENEW, validator=self._validator, fence=lease.fence, ttl_ms=ttl_ms
        )
        return None if expires_ms is None else msgspec.structs.replace(lease, expires_ms=int(expires_ms))

    async def expired(self) -> list[Lease]:
        """This validator's leases that ran out or were lost unfinished and have no attempt record yet."""
        return [self._read_lease(row) for row in await self._session.rows(sql.EXPIRED, validator=self._validator)]

    async def close_items(self, race_id: str, stage: Stage, agent_version_id: str = "") -> int:
        """Close our unfinished items of a race and stage (of one agent, when named), whose leases are lost by it;
        returns how many."""
        return int(
            await self._session.write_scalar(
                sql.CLOSE_ITEMS,
                validator=self._validator,
                race_id=race_id,
                stage=stage,
                agent_version_id=agent_version_id,
            )
        )

    async def open_items(self, race_id: str, stage: Stage) -> int:
        """Our work items of a race and stage that are neither finished nor closed."""
        return int(await self._session.scalar(sql.OPEN_ITEMS, validator=self._validator, race_id=race_id, stage=stage))

    # -- submissions, events, weights

    async def put_submission(
        self, submission: StoredSubmission, source: str, *, is_alone: bool = False
    ) -> StoredSubmission:
        """Store a submission unless it, or `is_alone` another of its hotkey that waits, is there; see the port."""
        rows = await self._session.write(
            sql.PUT_SUBMISSION,
            validator=self._validator,
            name=submission.name,
            source=_utf8(source),
            submitted_ms=submission.submitted_ms,
            signature=submission.signature,
            state=submission.state,
            report=submission.report,
            is_alone=is_alone,
            **msgspec.structs.asdict(submission.subject),
        )
        return _read_submission(dict(rows[0]._mapping))

    async def submissions(
        self, states: Sequence[SubmissionState] = GATED, *, miner_hotkey: str = ""
    ) -> list[StoredSubmission]:
        """Submissions of these states in the order they came, of everybody or of one hotkey, without their sources."""
        rows = await self._session.rows(
            sql.SUBMISSIONS, validator=self._validator, states=list(states), miner_hotkey=miner_hotkey
        )
        return [_read_submission(dict(row._mapping)) for row in rows]

    async def source(self, agent_version_id: str) -> str | None:
        """The agent file of a stored submission, or None."""
        rows = await self._session.rows(sql.SOURCE, validator=self._validator, agent_version_id=agent_version_id)
        return rows[0].source.decode() if rows else None

    async def sources(self) -> AsyncIterator[StoredSource]:
        """The agent file of every submission that this login may read, in the order they came, page by page."""
        after = 0
        while rows := await self._session.rows(sql.SOURCES, after=after, page=SOURCES_PER_PAGE):
            for row in rows:
                subject = Subject(**{name: row._mapping[name] for name in Subject.__struct_fields__})
                yield StoredSource(validator=row.validator, subject=subject, source=row.source)
            after = rows[-1].ordinal

    async def set_submission_state(
        self,
        agent_version_id: str,
        state: SubmissionState,
        report: str = "",
        *,
        was: SubmissionState | Literal[""] = "",
        failure: Failure | None = None,
        qualifying_e4: int | None = None,
        commitment_block: int = 0,
    ) -> bool:
        """Move a submission; see the port. Raises ArenaError V2025 when there is none."""
        is_moved = await self._session.write_scalar(
            sql.SET_SUBMISSION_STATE,
            validator=self._validator,
            agent_version_id=agent_version_id,
            was=was,
            state=state,
            report=report,
            failure=None if failure is None else msgspec.json.encode(failure).decode(),
            qualifying_e4=qualifying_e4,
            commitment_block=commitment_block,
        )
        if not is_moved and not was:
            raise ArenaError("V2025", f"no submission {agent_version_id}")
        return bool(is_moved)

    async def put_agreed(self, agent_version_id: str, agreed: AgreedStanding) -> None:
        """Say where a submission stood with all validators at the last close."""
        text = msgspec.json.encode(agreed).decode()
        await self._session.write(
            sql.PUT_AGREED, validator=self._validator, agent_version_id=agent_version_id, agreed=text
        )

    # -- submissions over HTTP

    async def spend_and_look(
        self, hotkey: str, nonce_ns: int, *, keep_ms: int, most: int, stream: str
    ) -> HotkeyState | None:
        """Let a signed request through once, and say what is known of the hotkey then, in one statement."""
        values = {"hotkey": hotkey, "nonce_ns": nonce_ns, "keep_ms": keep_ms, "most": most, "stream": stream}
        rows = await self._session.write(sql.SPEND_AND_LOOK, validator=self._validator, **values)
        if not rows:
            return None
        stored: list[dict[str, Any]] = msgspec.json.decode(rows[0].submissions or "[]")
        return HotkeyState(event=rows[0].event or "", submissions=tuple(map(_read_submission, stored)))

    async def item_counts(self, agent_version_id: str) -> list[ItemCount]:
        """This validator's work on an agent, by race in the order of their names."""
        values = {"validator": self._validator, "agent_version_id": agent_version_id}
        return [
            msgspec.convert(dict(row._mapping), ItemCount)
            for row in await self._session.rows(sql.ITEM_COUNTS, **values)
        ]

    # -- races and weights

    async def put_event(self, stream: str, index: int, event: str) -> None:
        """Append event number `index` of a stream. Raises ArenaError V2022 unless it is the next one."""
        await self._session.write(sql.PUT_EVENT, validator=self._validator, stream=stream, index=index, event=event)

    async def events(self, stream: str) -> list[str]:
        """The events of a stream, in order."""
        return [row.event for row in await self._session.rows(sql.EVENTS, validator=self._validator, stream=stream)]

    async def streams(self, prefix: str) -> list[str]:
        """The streams whose names begin so, in the order in which they were begun."""
        rows = await self._session.rows(sql.STREAMS, validator=self._validator, prefix=prefix)
        return [row.stream for row in rows]

    async def put_usage(self, usage: AttemptUsage) -> None:
        """Keep the account of an attempt. The first one of an attempt stands."""
        values = msgspec.structs.asdict(usage) | {"rows": msgspec.json.encode(usage.rows).decode()}
        await self._session.write(sql.PUT_USAGE, validator=self._validator, **values)

    async def usage_totals(self) -> list[UsageTotal]:
        """All accounts, summed, in the order of their keys."""
        rows = await self._session.rows(sql.USAGE_TOTALS, validator=self._validator)
        return [msgspec.convert(dict(row._mapping), UsageTotal) for row in rows]

    async def put_weights_result(self, result: WeightsResult) -> None:
        """Store one try at setting weights."""
        values = msgspec.structs.asdict(result) | {"uids": list(result.uids), "weights_u16": list(result.weights_u16)}
        await self._session.write(sql.PUT_WEIGHTS_RESULT, validator=self._validator, **values)

    async def weights_results(self, limit: int = 20) -> list[WeightsResult]:
        """The latest tries, newest first."""
        rows = await self._session.rows(sql.WEIGHTS_RESULTS, validator=self._validator, limit=limit)
        return [msgspec.convert(dict(row._mapping), WeightsResult) for row in rows]

    def _read_lease(self, row: Row[Any]) -> Lease:
        item = msgspec.json.decode(row.work, type=WorkItem)
        return Lease(
            item=item,
            validator=self._validator,
            fence=row.fence,
            expires_ms=row.expires_ms,
            faults=row.faults,
            counted=row.counted,
            refused=row.refused,
        )


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ArenaError("V2025", f"not UTF-8: {error.reason}") from error


def _read_submission(fields: dict[str, Any]) -> StoredSubmission:
    subject = Subject(**{each: fields.pop(each) for each in Subject.__struct_fields__})
    failure, agreed = fields.pop("failure"), fields.pop("agreed")
    return StoredSubmission(
        subject=subject,
        failure=msgspec.json.decode(failure, type=Failure) if failure else None,
        agreed=msgspec.json.decode(agreed, type=AgreedStanding) if agreed else None,
        **fields,
    )
