"""Everything durable of a validator: its log, and the working state beside it, over its own login role.

Every write is one call of one function of `migrations/sql`, so it happens whole or not at all: an append with its
bodies and the finish of its lease, or nothing of them. An append for another hotkey is refused, a lease that was lost
can't be finished, and the server's clock decides expiry. Pages are read by key and not by a cursor, so a reader holds
no transaction open, and since a log only grows at its end, pages of different moments fit together. A store reads what
its login may see; all times are unix milliseconds.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from arena.records import model, port
from arena.records.body import restore_frame
from arena.records.log import first_head
from arena.store.archive import SIZE, read_contents, read_frames
from arena.store.connect import Hold, Row, Session, coded_errors, open_pool, require_server
from arena.store.schema import SCHEMA_REVISION, revision
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError, Failure

if TYPE_CHECKING:
    from arena.store.objects import BodyObjects

T = TypeVar("T")
RECORDS_PER_PAGE = 500
LEAVES_PER_PAGE = 5_000
SOURCES_PER_PAGE = 16  # of up to 1 MB each

# A validator that left evidence has a log: one whose head is gone is not to vanish. Hotkeys are found one by one by
# index, since every record has one.
_VALIDATORS = (
    "with recursive recorded(validator) as (select min(validator) from arena.record union all"
    " select (select min(r.validator) from arena.record r where r.validator > n.validator) from recorded n"
    " where n.validator is not null),"
    " log(validator) as (select validator from arena.head union select validator from arena.checkpoint"
    " union select validator from arena.anchor"
    " union select validator from recorded where validator is not null)"
    " select validator from log order by validator"
)
_LEAF = "seq, prev, sha256, signature"
_CONTENT = "content, archive_sha256"
# Logs are read by the whole key: a row that was doubled on another day is read as often as it stands.
_BEHIND = "from arena.record where validator = :validator and (seq, day) > (:after_seq, :after_day)"
_UP_TO, _SEQ_MAX = "and seq <= :to_seq", 2**63 - 1  # under row security an index is not asked for seq <= coalesce(...)
# An append may last over midnight, and a clock may be set back behind it.
_IS_DATED = (
    "day between ((appended_at - interval '1 hour') at time zone 'UTC')::date"
    " and ((appended_at + interval '1 hour') at time zone 'UTC')::date as is_dated"
)
_SUBJECT = "agent_version_id, miner_hotkey, agent_sha256, commitment_block, commitment_sha256"
_SUBMISSION = (
    f"select {_SUBJECT}, name, submitted_ms, signature, state,"
    " (extract(epoch from received_at) * 1000)::bigint as received_ms, report, failure, qualifying_e4, agreed"
    " from arena.submission where validator = :validator"
)


class PostgresStore:
    """The store of one validator; of the logs of others it reads what its login may see."""

    def __init__(self, session: Session, validator: str, objects: BodyObjects | None = None, dsn: str = "") -> None:
        self.session, self._dsn = session, dsn
        self.validator = validator  # the hotkey this store writes for
        self.objects = objects

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
        schema is not the one this code needs, V2024 when another process holds the hotkey, V2026 where the
        server can't be used.
        """
        pool = await open_pool(dsn)
        session = Session(pool)
        try:
            with coded_errors(dsn, is_first=True):
                async with pool.acquire() as connection:
                    require_server(connection)
                    found = await revision(connection)
                    if found != SCHEMA_REVISION:
                        raise ArenaError("V2023", f"found {found or 'no schema'}, need {SCHEMA_REVISION}")
            ((hotkey,),) = await session.rows("select arena.session_hotkey()")
            if validator is not None and hotkey != validator:
                raise ArenaError("V2022", f"this login belongs to hotkey {hotkey}, not {validator}")
            if is_exclusive and hotkey:
                session = Session(pool, Hold(dsn, hotkey))
                await session.require()
        except BaseException:
            await session.close()
            raise
        return cls(session, hotkey or "", objects, dsn)

    @property
    def reopen(self) -> Callable[[], Coroutine[Any, Any, PostgresStore]]:
        """Opens it in another process, to read."""
        return functools.partial(PostgresStore.open, self._dsn, objects=self.objects)

    async def close(self) -> None:
        """Close the connections, and let go of the hotkey."""
        await self.session.close()

    # -- the log

    async def head(self, validator: str | None = None) -> model.Head:
        """The end of a validator's log (None: our own); `first_head` where it has none."""
        name = self._of(validator)
        rows = await self.session.rows("select seq, hash from arena.head where validator = :validator", validator=name)
        return model.Head(rows[0].seq, rows[0].hash.hex()) if rows else first_head(name)

    async def validators(self) -> list[str]:
        """The hotkeys that have a head, a record or a checkpoint that this login may see, sorted."""
        return [row.validator for row in await self.session.rows(_VALIDATORS)]

    async def append(
        self,
        records: Sequence[model.SignedRecord],
        bodies: Sequence[model.BodyFrame] = (),
        finish: port.Lease | None = None,
    ) -> model.Head:
        """Append in order, in one transaction with `bodies` (of `compress_bodies`) and the finish of a lease.

        Raises ArenaError V2022 when the head moved (`HeadMovedError`), the lease was lost (`LeaseLostError`) or the
        hotkey is another's; V2025 when the store can't hold the records; V2021 when the server is away; V2028 and V2029
        for the object store, before anything is appended.
        """
        return await self._append(records, bodies, {"fence": finish.fence, "lease_state": "done"} if finish else {})

    async def abandon(self, lease: port.Lease, record: model.SignedRecord, requeue: port.Requeue) -> model.Head:
        """Return an unfinished lease of ours to the queue and append its `attempt` record, in one transaction.

        Raises as `append`."""
        ending: dict[str, object] = {
            "fence": lease.fence,
            "lease_state": "refused" if requeue.is_refused else "abandoned",
            "delay_ms": requeue.delay_ms,
            "is_fault": requeue.is_fault,
            "is_counted": requeue.is_counted,
        }
        return await self._append([record], (), ending)

    async def _append(
        self, records: Sequence[model.SignedRecord], frames: Sequence[model.BodyFrame], ending: dict[str, object]
    ) -> model.Head:
        """`ending`: how a lease ends by it. The SQL function `append` checks the head and ends the lease."""
        for place, record in enumerate(records):  # the server takes the head from the first one and counts on
            if record.validator != self.validator:
                raise ArenaError("V2022", f"a record of {record.validator} in the store of {self.validator}")
            if record.seq != records[0].seq + place:
                raise ArenaError("V2025", f"records of one append must follow each other, not {record.seq}")
        if self.objects and frames:  # durable before any row says so; an append that fails leaves harmless objects
            await self.objects.put(self.validator, frames)
        rows = await self._call(
            "append",
            seq=records[0].seq,
            prev=bytes.fromhex(records[0].prev),
            contents=[record.content for record in records],
            signatures=[bytes.fromhex(record.signature) for record in records],
            body_sha256s=[bytes.fromhex(frame.body_sha256) for frame in frames],
            body_sizes=[frame.size for frame in frames],
            bodies=[None if self.objects else frame.content for frame in frames],
            **ending,
        )
        return model.Head(rows[0].head_seq, rows[0].head_hash.hex())

    async def records(
        self,
        validator: str | None = None,
        *,
        after_seq: int = 0,
        kinds: Sequence[str] = (),
        race_id: str | None = None,
        page: int = RECORDS_PER_PAGE,
    ) -> AsyncIterator[model.SignedRecord]:
        """Records of one validator, or of all this login may see (None), in (validator, seq) order, streamed; `page` is
        how many are read, and held, at a time."""
        query = (
            f"select {_LEAF}, day, {_CONTENT} {_BEHIND}"
            " and (kind = any (:kinds) or :kinds is null) and (race_id = :race_id or :race_id is null)"
        )
        wanted: dict[str, Any] = {"kinds": list(kinds) or None, "race_id": race_id}
        for name in [validator] if validator is not None else await self.validators():
            async for rows in self._pages_behind(query, after_seq, page, validator=name, **wanted):
                for record in await self._records_of(name, rows):
                    yield record

    async def every_seq(self, validator: str, step: int, after_seq: int) -> list[int]:
        """The number of every so many-th row of one log behind a record, in order."""
        rows = f"select seq {_BEHIND} order by seq limit :most"
        query = f"select seq, row_number() over (order by seq) as place from ({rows}) as page"
        query = f"select seq from ({query}) as placed where place % :step = 0 order by place"
        found: list[int] = []
        while True:  # a log of years is no one command's work
            last_seq, most = found[-1] if found else after_seq, step * LEAVES_PER_PAGE
            named = {"after_seq": last_seq, "after_day": date.max, "step": step, "most": most}
            page = await self.session.rows(query, validator=validator, **named)
            found += [row.seq for row in page]
            if len(page) < LEAVES_PER_PAGE:
                return found

    async def filed_records(self, validator: str, after_seq: int, to_seq: int | None) -> AsyncIterator[model.Entry]:
        """Every row of one log in order, doubled ones too, with what each is filed under: what verification reads."""
        query = f"select {_LEAF}, day, {_CONTENT}, kind, race_id, body_sha256, {_IS_DATED} {_BEHIND} {_UP_TO}"
        async for rows in self._pages_behind(query, after_seq, RECORDS_PER_PAGE, validator=validator, to_seq=to_seq):
            contents = await read_contents(self.objects, validator, rows)
            for row, content in zip(rows, contents, strict=True):
                filing = model.Filing(row.kind, row.race_id, row.body_sha256.hex() if row.body_sha256 else "")
                yield model.Entry(**_envelope(validator, row), content=content, filing=filing, is_dated=row.is_dated)

    async def leaves(
        self, validator: str, *, after_seq: int = 0, to_seq: int | None = None
    ) -> AsyncIterator[model.Envelope]:
        """Leaves of one log in order, without contents: some ten times as fast to read as `records`."""
        query = f"select {_LEAF}, day {_BEHIND} {_UP_TO}"
        async for rows in self._pages_behind(query, after_seq, LEAVES_PER_PAGE, validator=validator, to_seq=to_seq):
            for row in rows:
                yield model.Envelope(**_envelope(validator, row))

    async def verdicts_on(self, body_sha256s: Sequence[str], validator: str | None = None) -> list[model.SignedRecord]:
        """Every verdict record of a validator (None: ours) on these bodies, in log order."""
        rows = await self.session.rows(
            f"select {_LEAF}, {_CONTENT} from arena.record where validator = :validator"
            " and kind = 'verdict' and body_sha256 = any (:body_sha256s) order by seq",
            validator=self._of(validator),
            body_sha256s=[bytes.fromhex(sha256) for sha256 in body_sha256s],
        )
        return await self._records_of(self._of(validator), rows)

    async def _records_of(self, validator: str, rows: Sequence[Row]) -> list[model.SignedRecord]:
        contents = await read_contents(self.objects, validator, rows)
        return [
            model.SignedRecord(**_envelope(validator, row), content=content)
            for row, content in zip(rows, contents, strict=True)
        ]

    async def _pages_behind(
        self, query: str, after_seq: int, page: int, to_seq: int | None = None, **values: object
    ) -> AsyncIterator[Sequence[Row]]:
        """Rows of a log behind a record, page by page in the order of number and day."""
        values |= {"page": page, "to_seq": _SEQ_MAX if to_seq is None else to_seq}
        last_seq, last_day, query = after_seq, date.max, f"{query} order by seq, day limit :page"
        while True:
            rows = await self.session.rows(query, after_seq=last_seq, after_day=last_day, **values)
            yield rows
            if len(rows) < page:
                return
            last_seq, last_day = rows[-1].seq, rows[-1].day

    async def size(self) -> port.StoreSize:
        """What the database takes, other validators' rows in it too, and how fast it grows. Raises ArenaError V2021."""
        found = (await self.session.rows(SIZE))[0]
        return port.StoreSize(bytes=found.bytes, day_bytes=found.week // 7)

    # -- bodies

    async def body(self, body_sha256: str, validator: str | None = None) -> model.StoredBody | None:
        """The body as a validator (None: we) stored it, or None. Raises ArenaError V2050 when its bytes do not have
        this hash, V2029 as `frames`."""
        for frame in await self.frames([body_sha256], validator):
            content = restore_frame(frame.content, frame.size)
            if hashlib.sha256(content).hexdigest() != body_sha256:
                raise ArenaError("V2050", f"body {body_sha256} does not have this hash")
            return model.StoredBody(body_sha256=body_sha256, content=content)
        return None

    async def frames(self, body_sha256s: Sequence[str], validator: str | None = None) -> list[model.BodyFrame]:
        """Those of a validator's bodies (None: of our own) that are stored, as they are, every copy of a body that was
        stored on several days; none for one whose object is missing. Their reader restores and checks them. Raises as
        `read_frames`."""
        name = self._of(validator)
        rows = await self.session.rows(  # content is null where its object is to be read
            "select sha256, size, content from arena.body where validator = :validator"
            " and sha256 = any (:body_sha256s) order by sha256, content is null, day",
            validator=name,
            body_sha256s=[bytes.fromhex(sha256) for sha256 in body_sha256s],
        )
        objects = await read_frames(self.objects, name, {row.sha256.hex() for row in rows if row.content is None})
        return [
            model.BodyFrame(body_sha256=row.sha256.hex(), content=content, size=row.size)
            for row in rows
            if (content := objects.get(row.sha256.hex()) if row.content is None else row.content) is not None
        ]

    async def some_bodies_elsewhere(self, count: int) -> list[str]:
        """Up to `count` of our bodies that lie in an object store."""
        query = "select distinct sha256 from arena.body where validator = :validator and content is null"
        return [row.sha256.hex() for row in await self._rows(f"{query} order by sha256 limit :count", count=count)]

    # -- checkpoints

    async def put_checkpoint(self, checkpoint: model.StoredCheckpoint) -> None:
        """Keep a signed checkpoint of this hotkey; one of the same size and note is kept once. Raises ArenaError V2022
        for another hotkey's, and for another note of that size: a validator does not sign two states of one size."""
        if checkpoint.validator != self.validator:
            raise ArenaError("V2022", f"a checkpoint of {checkpoint.validator} in the store of {self.validator}")
        await self._call("put_checkpoint", size=checkpoint.size, note=checkpoint.note, signed_ms=checkpoint.signed_ms)

    async def put_anchor(self, size: int, note_sha256: str, block: int) -> None:
        """Say in which finalized block the chain holds the checkpoint of that size. Raises ArenaError V2022 when there
        is no such checkpoint, or its anchor is in another block."""
        await self._call("put_anchor", size=size, note_sha256=bytes.fromhex(note_sha256), block=block)

    async def checkpoints(self, validator: str | None = None, *, after_size: int = 0) -> list[model.StoredCheckpoint]:
        """The checkpoints of a validator (None: ours), by size."""
        rows = await self.session.rows(
            "select size, coalesce(c.note, '') as note, coalesce(c.signed_ms, 0) as signed_ms,"
            " coalesce(a.block, 0) as anchor_block, coalesce(encode(a.note_sha256, 'hex'), '') as anchored_sha256"
            " from arena.checkpoint c full join arena.anchor a using (validator, size)"
            " where validator = :validator and size > :after_size order by size",
            validator=self._of(validator),
            after_size=after_size,
        )
        return [model.StoredCheckpoint(validator=self._of(validator), **row) for row in rows]

    # -- work

    async def enqueue(self, items: Sequence[port.WorkItem], owners: Mapping[str, str] | None = None) -> int:
        """Add items that are not there yet, charged to their hotkeys' owners or to these; returns how many were new."""
        rows = await self._call(
            "enqueue",
            ids=[item.item_id for item in items],
            stages=[item.context.stage for item in items],
            races=[item.context.race_id for item in items],
            agents=[item.subject.agent_version_id for item in items],
            owners=[(owners or {}).get(item.subject.miner_hotkey, item.subject.miner_hotkey) for item in items],
            work=[canonical_bytes(item).decode() for item in items],
        )
        return int(rows[0][0])

    async def claim(
        self, count: int, ttl_ms: int, stages: Sequence[model.Stage] = ("race", "qualifying"), *, charge_ms: int = 0
    ) -> list[port.Lease]:
        """Lease up to `count` of our items of these stages, in the order that the SQL function states. Each is charged
        to its owner with `charge_ms`, and from its end on with what it took."""
        rows = await self._call("claim", stages=list(stages), count=count, ttl_ms=ttl_ms, charge_ms=charge_ms)
        return [self._read_lease(row) for row in rows]

    async def renew(self, lease: port.Lease, ttl_ms: int) -> port.Lease | None:
        """The lease with a later expiry, or None when it was lost."""
        ((expires_ms,),) = await self._call("renew", fence=lease.fence, ttl_ms=ttl_ms)
        return None if expires_ms is None else msgspec.structs.replace(lease, expires_ms=int(expires_ms))

    async def expired(self) -> list[port.Lease]:
        """This validator's leases that ran out or were lost unfinished. They stay listed until `abandon` is called for
        each, so that no attempt goes without a record."""
        rows = await self._rows(
            "select l.fence, i.work, (extract(epoch from l.expires_at) * 1000)::bigint as expires_ms, l.faults,"
            " l.counted, l.refused, l.owner from arena.lease l join arena.item i"
            " using (validator, item_id) where l.validator = :validator"
            " and (l.state = 'lost' or (l.state = 'open' and l.expires_at <= clock_timestamp())) order by l.fence"
        )
        return [self._read_lease(row) for row in rows]

    async def close_items(self, race_id: str, stage: model.Stage, agent_version_id: str = "") -> int:
        """Close our unfinished items of a race and stage (of one agent, when named): nobody claims them again, and
        `renew` and a finish of their leases answer that the lease is lost. Returns how many."""
        rows = await self._call("close_items", race_id=race_id, stage=stage, agent_version_id=agent_version_id)
        return int(rows[0][0])

    async def open_items(self, race_id: str, stage: model.Stage) -> int:
        """Our work items of a race and stage that are neither finished nor closed."""
        query = (
            "select count(*) from arena.item where validator = :validator and race_id = :race_id and stage = :stage"
            " and state in ('open', 'leased')"
        )
        return int((await self._rows(query, race_id=race_id, stage=stage))[0][0])

    async def item_counts(self, agent_version_id: str) -> list[port.ItemCount]:
        """This validator's work on an agent, by race in the order of their names."""
        query = (
            "select stage, race_id, count(*) filter (where state = 'done') as done, count(*) as total from arena.item"
            " where validator = :validator and agent_version_id = :agent_version_id"
            " group by stage, race_id order by race_id"
        )
        return _read_all(await self._rows(query, agent_version_id=agent_version_id), port.ItemCount)

    # -- submissions

    async def put_submission(
        self, submission: port.StoredSubmission, source: str, *, is_alone: bool = False
    ) -> port.StoredSubmission:
        """Store a submission, unless this version is there already; one that was withdrawn, or refused with an earlier
        commitment, is replaced. `is_alone`: and unless another of its hotkey waits. Returns the row that stands then:
        this version's, or the waiting one's."""
        try:
            content = source.encode()
        except UnicodeEncodeError as error:
            raise ArenaError("V2025", f"not UTF-8: {error.reason}") from error
        rows = await self._call(
            "put_submission",
            name=submission.name,
            source=content,
            submitted_ms=submission.submitted_ms,
            signature=submission.signature,
            state=submission.state,
            report=submission.report,
            is_alone=is_alone,
            **msgspec.structs.asdict(submission.subject),
        )
        return _read_submission(dict(rows[0]))

    async def submissions(
        self, states: Sequence[port.SubmissionState] = port.GATED, *, miner_hotkey: str = ""
    ) -> list[port.StoredSubmission]:
        """Submissions of these states in the order they came, of everybody or of one hotkey. Sources are not loaded:
        see `source`."""
        query = (
            f"{_SUBMISSION} and state = any (:states)"
            " and (:miner_hotkey = '' or miner_hotkey = :miner_hotkey) order by ordinal"
        )
        rows = await self._rows(query, states=list(states), miner_hotkey=miner_hotkey)
        return [_read_submission(dict(row)) for row in rows]

    async def source(self, agent_version_id: str) -> str | None:
        """The agent file of a stored submission, or None. That of a withdrawn or refused one is ""."""
        query = (
            "select source from arena.submission where validator = :validator and agent_version_id = :agent_version_id"
        )
        rows = await self._rows(query, agent_version_id=agent_version_id)
        return rows[0].source.decode() if rows else None

    async def sources(self) -> AsyncIterator[port.StoredSource]:
        """The agent file of every submission that this login may read, in the order they came, page by page."""
        query = (
            f"select ordinal, validator, {_SUBJECT}, source from arena.submission where ordinal > :after"
            " and state not in ('waiting', 'withdrawn', 'refused') order by ordinal limit :page"
        )
        after = 0
        while rows := await self.session.rows(query, after=after, page=SOURCES_PER_PAGE):
            for row in rows:
                subject = model.Subject(**{name: row[name] for name in model.Subject.__struct_fields__})
                yield port.StoredSource(validator=row.validator, subject=subject, source=row.source)
            after = rows[-1].ordinal

    async def set_submission_state(
        self,
        agent_version_id: str,
        state: port.SubmissionState,
        report: str = "",
        *,
        was: port.SubmissionState | Literal[""] = "",
        failure: Failure | None = None,
        qualifying_e4: int | None = None,
        commitment_block: int = 0,
    ) -> bool:
        """Move a submission, with the reason of a refusal. An empty report, no score and block 0 keep the last ones.

        `was`: only from this state; False where it is in another. Raises ArenaError V2025 when there is none."""
        ((is_moved,),) = await self._call(
            "set_submission_state",
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

    async def put_agreed(self, agent_version_id: str, agreed: port.AgreedStanding) -> None:
        """Say where a submission stood with all validators at the last close."""
        text = msgspec.json.encode(agreed).decode()
        await self._call("put_agreed", agent_version_id=agent_version_id, agreed=text)

    async def spend_and_look(
        self, hotkey: str, nonce_ns: int, *, keep_ms: int, most: int, stream: str
    ) -> port.HotkeyState | None:
        """Let a signed request through once, whichever process asks, and say what is known of the hotkey then, with the
        last event of `stream`; None for one that was let through before, for which nothing is read. It is kept for
        `keep_ms` (milliseconds), `most` of one hotkey at once."""
        query = (
            "with spent as materialized"
            " (select arena.spend_nonce(:validator, :hotkey, :nonce_ns, :keep_ms, :most) as is_new)"
            " select (select event from arena.event where validator = :validator and stream = :stream"
            " order by index desc limit 1) as event,"
            f" (select json_agg(s) from ({_SUBMISSION} and miner_hotkey = :hotkey order by ordinal) s)::text"
            " as submissions from spent where is_new"
        )
        await self.session.require()
        rows = await self._rows(query, hotkey=hotkey, nonce_ns=nonce_ns, keep_ms=keep_ms, most=most, stream=stream)
        if not rows:
            return None
        stored: list[dict[str, Any]] = msgspec.json.decode(rows[0].submissions or "[]")
        return port.HotkeyState(event=rows[0].event or "", submissions=tuple(map(_read_submission, stored)))

    # -- races and weights: events in order, JSON text, one writer

    async def put_event(self, stream: str, index: int, event: str) -> None:
        """Append event number `index` (from 0) of a stream. Raises ArenaError V2022 unless it is the next one."""
        await self._call("put_event", stream=stream, index=index, event=event)

    async def events(self, stream: str) -> list[str]:
        """The events of a stream, in order."""
        query = "select event from arena.event where validator = :validator and stream = :stream order by index"
        return [row.event for row in await self._rows(query, stream=stream)]

    async def streams(self, prefix: str) -> list[str]:
        """The streams whose names begin so, in the order in which they were begun."""
        query = (
            "select stream from arena.event where validator = :validator and starts_with(stream, :prefix)"
            " and index = 0 order by put_at, stream"
        )
        return [row.stream for row in await self._rows(query, prefix=prefix)]

    async def put_usage(self, usage: port.AttemptUsage) -> None:
        """Keep the account of an attempt: the operator's, no evidence. The first one of an attempt stands."""
        await self._call(
            "put_usage", **msgspec.structs.asdict(usage) | {"rows": msgspec.json.encode(usage.rows).decode()}
        )

    async def usage_totals(self) -> list[port.UsageTotal]:
        """All accounts, summed, in the order of their keys."""
        query = (
            "select to_char(put_at at time zone 'UTC', 'YYYY-MM-DD') as day, race_id, stage, agent_version_id,"
            " upstream, model, count(*)::integer as episodes, sum(requests)::bigint as requests,"
            " sum(attempts)::bigint as attempts, sum(probes)::bigint as probes, sum(latency_ms)::bigint as latency_ms,"
            " sum(prompt_tokens)::bigint as prompt_tokens, sum(completion_tokens)::bigint as completion_tokens,"
            " case when bool_and(cost_micro_usd is not null) then sum(cost_micro_usd)::bigint end as cost_micro_usd"
            " from arena.usage where validator = :validator group by 1, 2, 3, 4, 5, 6 order by 1, 2, 3, 4, 5, 6"
        )
        return _read_all(await self._rows(query), port.UsageTotal)

    async def put_weights_result(self, result: port.WeightsResult) -> None:
        """Store one try at setting weights."""
        values = msgspec.structs.asdict(result) | {"uids": list(result.uids), "weights_u16": list(result.weights_u16)}
        await self._call("put_weights_result", **values)

    async def weights_results(self, limit: int = 20) -> list[port.WeightsResult]:
        """The latest tries, newest first."""
        query = (
            "select race_id, block, uids, weights_u16, status, detail from arena.weights_result"
            " where validator = :validator order by ordinal desc limit :limit"
        )
        return _read_all(await self._rows(query, limit=limit), port.WeightsResult)

    async def _call(self, function: str, **values: object) -> Sequence[Row]:
        """The rows that a writing function of ours returns."""
        return await self.session.call(function, validator=self.validator, **values)

    async def _rows(self, query: str, **values: object) -> Sequence[Row]:
        """The rows of our own that a query finds."""
        return await self.session.rows(query, validator=self.validator, **values)

    def _of(self, validator: str | None) -> str:
        return self.validator if validator is None else validator

    def _read_lease(self, row: Row) -> port.Lease:
        about = {name: value for name, value in row.items() if name != "work"}
        return port.Lease(item=msgspec.json.decode(row.work, type=port.WorkItem), validator=self.validator, **about)


def _envelope(validator: str, row: Row) -> dict[str, Any]:
    return {
        "validator": validator,
        "seq": row["seq"],  # by index: an attribute takes twice the time, and these are of each record
        "prev": row["prev"].hex(),
        "content_sha256": row["sha256"].hex(),
        "signature": row["signature"].hex(),
    }


def _read_all(rows: Sequence[Row], kind: type[T]) -> list[T]:
    return [msgspec.convert(dict(row), kind) for row in rows]


def _read_submission(fields: dict[str, Any]) -> port.StoredSubmission:
    subject = model.Subject(**{each: fields.pop(each) for each in model.Subject.__struct_fields__})
    failure, agreed = fields.pop("failure"), fields.pop("agreed")
    return port.StoredSubmission(
        subject=subject,
        failure=msgspec.json.decode(failure, type=Failure) if failure else None,
        agreed=msgspec.json.decode(agreed, type=port.AgreedStanding) if agreed else None,
        **fields,
    )
