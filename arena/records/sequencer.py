"""The sequencer: the one place that gives records their number, time and signature, one per hotkey.

Payloads are appended in order, in one transaction with their bodies and the end of their lease. When another
process moved the head, the same payloads are signed again on the new one, a bounded number of times. When a reply was
lost, the log itself tells whether the append happened, however late the server committed it: each head that was sent
and not refused is remembered, two on one number can't both stand, and so calling `append` again with the same payloads
never doubles them. After a crash that memory is gone: the store's hold on the hotkey waits for what was still running.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from arena.chain.port import Signer
from arena.records.body import compress_bodies
from arena.records.log import head_after, message_of
from arena.records.model import (
    AttemptRecord,
    BodyFrame,
    Head,
    HostFacts,
    Payload,
    RecordContent,
    SignedRecord,
    StoredBody,
)
from arena.records.port import HeadMovedError, Lease, RecordStore, Requeue
from foundation.canonical import canonical_bytes
from foundation.codes import STORE_AWAY
from foundation.errors import ArenaError

SIGNING_ATTEMPTS = 64
BLIND_BYTES = 16

Write = Callable[[list[SignedRecord], list[BodyFrame]], Awaitable[Head]]


class Sequencer:
    """Signs and appends for one hotkey. Share one between the tasks of a process."""

    def __init__(self, store: RecordStore, signer: Signer, now_ms: Callable[[], int], host: HostFacts) -> None:
        self._store = store
        self._signer = signer
        self._now_ms = now_ms
        self._host = host
        self._lock = asyncio.Lock()
        self._head: Head | None = None  # None: ask the store
        # payloads sent without an answer, and the heads the log has if one of the tries arrived
        self._unanswered: dict[tuple[Payload, ...], list[Head]] = {}

    async def append(
        self,
        payloads: Sequence[Payload],
        bodies: Sequence[StoredBody] = (),
        finish: Lease | None = None,
        *,
        host: HostFacts | None = None,
    ) -> Head:
        """Append payloads, with their bodies and the finish of a lease, and return the new head.

        `host` replaces the sequencer's host facts for these records (times of one episode). Raises ArenaError V2022
        when the lease was lost, the hotkey is another's or the head kept moving; V2021 when the server is away; V2025
        when the store can't hold these records or bodies.
        """
        return await self._write(
            tuple(payloads),
            bodies,
            host or self._host,
            lambda records, frames: self._store.append(records, frames, finish),
        )

    async def abandon(self, lease: Lease, payload: AttemptRecord, requeue: Requeue) -> Head:
        """Return an unfinished lease of ours to the queue and append its attempt record, in one transaction.

        For leases that ran out and for attempts that ended in a fault of ours. Raises as `append`.
        """
        return await self._write(
            (payload,), (), self._host, lambda records, _: self._store.abandon(lease, records[0], requeue)
        )

    async def _write(
        self, payloads: tuple[Payload, ...], bodies: Sequence[StoredBody], host: HostFacts, write: Write
    ) -> Head:
        if not payloads:
            raise ArenaError("V2025", "there is nothing to append")
        async with self._lock:
            may_repeat = True
            for _ in range(SIGNING_ATTEMPTS):
                head = self._head or await self._store.head()
                sent = self._unanswered.get(payloads, [])
                if await self._has_arrived(sent, head):
                    return self._confirm(payloads, head)
                frames, records = await asyncio.gather(
                    compress_bodies(bodies), self._sign(payloads, bodies, host, head)
                )
                self._head = None
                sent.append(head_after(records[-1]))
                self._unanswered[payloads] = sent
                try:
                    return self._confirm(payloads, await write(records, frames))
                except ArenaError as error:
                    if error.failure.code == STORE_AWAY:
                        if not may_repeat:
                            raise
                        may_repeat = False
                        continue
                    sent.pop()  # this one was refused; earlier ones may still arrive
                    if not sent:
                        del self._unanswered[payloads]
                    if not isinstance(error, HeadMovedError):
                        raise
            raise HeadMovedError("V2022", f"the head moved {SIGNING_ATTEMPTS} times while records were signed")

    async def _has_arrived(self, sent: Sequence[Head], head: Head) -> bool:
        """True when the log, which stands at `head`, holds one of the tries that were sent."""
        if not sent or head.seq < min(try_.seq for try_ in sent):
            return False
        last = max(try_.seq for try_ in sent)
        async for record in self._store.records(self._store.validator, after_seq=min(try_.seq for try_ in sent) - 1):
            if head_after(record) in sent:
                return True
            if record.seq >= last:
                break
        return False

    def _confirm(self, payloads: tuple[Payload, ...], head: Head) -> Head:
        del self._unanswered[payloads]
        self._head = head
        return head

    async def _sign(
        self, payloads: Sequence[Payload], bodies: Sequence[StoredBody], host: HostFacts, head: Head
    ) -> list[SignedRecord]:
        """Sign the payloads, once every body has the hash that names it; many bodies are compressed by a thread
        meanwhile. Raises ArenaError V2025."""
        for body in bodies:
            if hashlib.sha256(body.content).hexdigest() != body.body_sha256:
                raise ArenaError("V2025", f"a body does not have the hash {body.body_sha256} it is named by")
        records = []
        for payload in payloads:
            blind = secrets.token_hex(BLIND_BYTES)
            content = canonical_bytes(
                RecordContent(recorded_ms=self._now_ms(), blind=blind, host=host, payload=payload)
            )
            unsigned = SignedRecord(
                validator=self._signer.hotkey,
                seq=head.seq + 1,
                prev=head.hash,
                content_sha256=hashlib.sha256(content).hexdigest(),
                signature="",
                content=content,
            )
            records.append(replace(unsigned, signature=self._signer.sign(message_of(unsigned)).hex()))
            head = head_after(unsigned)
        return records
