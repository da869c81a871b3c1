"""The Postgres store: `arena.store.port.Store` over one validator's own login role.

Every write is one call of one SQL function, so it happens whole or not at all, and what this role may not do
the server refuses. It reads what its login may see: the log and working state of one hotkey. Holds no state but
connections; safe to share between the tasks of one event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from sqlalchemy import Row

from arena.records.model import Stage, Subject
from arena.store.port import (
    GATED,
    AgreedStanding,
    AttemptUsage,
    HotkeyState,
    ItemCount,
    Lease,
    StoredSource,
    StoredSubmission,
    SubmissionState,
    UsageTotal,
    WeightsResult,
    WorkItem,
)
from arena.store.postgres import statements as sql
from arena.store.postgres.connect import Hold, Session, coded_errors, open_engine
from arena.store.postgres.log import PostgresLog
from arena.store.schema import SCHEMA_REVISION, revision
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError, Failure

if TYPE_CHECKING:
    from arena.store.objects import BodyObjects


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
