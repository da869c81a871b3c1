"""What this validator answers others, from its own log and from the logs it holds. No transport in it.

Only a caller that holds a validator permit gets an answer, and no more than its share. A record counts as
secret until the roll that reveals it is final (`RevealGate`): before, not one row of that race leaves, and after, only
rows under the anchored root. Records of every other race stay stubs. Agents' sources go to permit holders alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from itertools import islice

import msgspec

from arena.exchange.log_digest import counts
from arena.exchange.operator_files import ReleaseStore
from arena.exchange.peer_logs import HeldLog, PeerLogStore
from arena.exchange.port import (
    FileQuestion,
    NoteQuestion,
    Progress,
    ProgressQuestion,
    ReleaseQuestion,
    RowsQuestion,
    SettlementQuestion,
    SubmissionQuestion,
)
from arena.export.assembly import log_row, signed_content
from arena.export.model import LogRow
from arena.race.agreement import RevealGate
from arena.records.log import note_sha256 as sha256_of
from arena.records.model import SettlementRecord, SignedRecord
from arena.records.port import EVERY_STATE
from arena.records.verification import batches_of
from arena.store.postgres import PostgresStore
from arena.submissions.submission import SignedSubmission, signed_submission
from foundation.errors import ArenaError

PAGE_ROWS = 128
ANSWER_ROWS = 20_000  # of one answer; the reader asks again behind the last
ANSWERS_AT_ONCE = 8  # of rows, to one caller
ANSWERS_MAX = 64  # to all, from where on each has one
_STUB_BYTES = 512


@dataclasses.dataclass(eq=False)
class PeerService:
    """Answers of one validator. `caller` is always a hotkey (prefix 42) whose signature was checked.

    `has_permit` and `gate` are asked at every request; `progress` says how far a race is, None where it is not run
    here, `settled` its settlement in force here. `releases` are the operator's files; None: none are kept.
    """

    store: PostgresStore
    logs: PeerLogStore
    has_permit: Callable[[str], bool]
    gate: Callable[[], RevealGate]
    progress: Callable[[str], Progress | None]
    settled: Callable[[str], SettlementRecord | None] = lambda race_id: None
    releases: ReleaseStore | None = None
    rules: ShareRules | None = None

    def __post_init__(self) -> None:
        self._shares = Shares(self.rules or ShareRules(), time.monotonic)
        self._reading: Counter[str] = Counter()  # answers of rows under way, by caller

    async def answer(self, caller: str, question: msgspec.Struct) -> object | None:
        """The answer to a question of `arena.exchange.port` but rows, or None where there is none.

        Raises ArenaError V2111, V2112, V2064, V2021.
        """
        self._admit(caller)
        match question:
            case NoteQuestion():
                return await self._note(question)
            case SubmissionQuestion():
                return await self._submission(question)
            case SettlementQuestion():
                return self.settled(question.race)
            case ProgressQuestion():
                return self.progress(question.race)
            case ReleaseQuestion():
                newest = await asyncio.to_thread(self.releases.newest) if self.releases else None
                return None if newest is None or newest.release.release_sha256 == question.known else newest
            case FileQuestion():
                return await self._file_piece(caller, question)
        raise TypeError(f"{type(question).__name__} is not a question")

    async def rows(self, caller: str, question: RowsQuestion) -> AsyncGenerator[LogRow]:
        """The rows asked for, at most ANSWER_ROWS of them, at the pace of the caller's share.

        Raises ArenaError V2111, V2112 and V2113 (not revealed, not held, beyond the anchored root) before any row.
        """
        self._admit(caller)
        self._require_place(caller)
        gate, validator, race_id, after_seq = self.gate(), question.validator, question.race, question.after
        about = f"records {after_seq + 1} to {question.to} of {validator} for {race_id or 'qualifying'}"
        if race_id not in gate or after_seq >= question.to:
            raise ArenaError("V2113", f"{about} are not shown now")
        if validator == self.store.validator:
            if question.to > gate[race_id]:
                raise ArenaError("V2113", f"{about}: shown up to {gate[race_id]}")
            pages = self._own_pages(after_seq, race_id)
        else:
            held = self.logs.held(race_id, validator)
            covering = [log for log in held if log.shown_after <= after_seq and question.to <= log.point.size]
            if not covering:
                raise ArenaError("V2113", f"{about} are not held here")
            pages = self._held_pages(covering[-1], after_seq)
        return self._paced(caller, pages, min(ANSWER_ROWS, question.to - after_seq))

    async def _note(self, question: NoteQuestion) -> str | None:
        kept = self.logs.note(question.validator, question.sha256)
        if kept is not None or question.validator != self.store.validator:
            return kept
        signed = await self.store.checkpoints()
        return next((point.note for point in signed if sha256_of(point.note) == question.sha256), None)

    async def _submission(self, question: SubmissionQuestion) -> SignedSubmission | None:
        for row in await self.store.submissions(EVERY_STATE, miner_hotkey=question.hotkey):
            if row.subject.commitment_sha256 == question.sha256:
                source = await self.store.source(row.subject.agent_version_id)
                return signed_submission(row, source) if source else None
        return None

    async def _file_piece(self, caller: str, question: FileQuestion) -> bytes | None:
        """At the pace of the caller's share."""
        self._require_place(caller)
        with self._answering(caller):
            releases = self.releases
            piece = await asyncio.to_thread(releases.piece, question.sha256, question.start) if releases else None
            await asyncio.sleep(self._shares.spend_bytes(caller, len(piece or b"")))
            return piece

    @contextmanager
    def _answering(self, caller: str) -> Iterator[None]:
        self._reading[caller] += 1
        try:
            yield
        finally:
            self._reading[caller] -= 1

    def _require_place(self, caller: str) -> None:
        most = ANSWERS_AT_ONCE if self._reading.total() < ANSWERS_MAX else 1
        if self._reading[caller] >= most:
            raise ArenaError("V2112", f"{most} answers at once")

    def _admit(self, caller: str) -> None:
        if not self.has_permit(caller):
            raise ArenaError("V2111", caller)
        self._shares.spend_request(caller)

    async def _paced(self, caller: str, pages: AsyncGenerator[list[LogRow]], left: int) -> AsyncGenerator[LogRow]:
        with self._answering(caller):
            async with aclosing(pages):
                async for page in pages:
                    for row in page[:left]:
                        yield row
                    left -= len(page)
                    if left <= 0:
                        return
                    size = sum(_STUB_BYTES + len(bytes(row.content or b"")) for row in page)
                    await asyncio.sleep(self._shares.spend_bytes(caller, size))

    async def _own_pages(self, after_seq: int, race_id: str) -> AsyncGenerator[list[LogRow]]:
        records = self.store.records(self.store.validator, after_seq=after_seq, page=PAGE_ROWS)
        async for page in batches_of(records, PAGE_ROWS):
            yield await asyncio.to_thread(shown_rows, page, race_id)

    async def _held_pages(self, log: HeldLog, after_seq: int) -> AsyncGenerator[list[LogRow]]:
        rows = self.logs.all_rows(log, after_seq)
        while page := await asyncio.to_thread(lambda: list(islice(rows, PAGE_ROWS))):
            yield page


def shown_rows(records: Iterable[SignedRecord], race_id: str) -> list[LogRow]:
    """The rows of own records, without bodies: those that count for a race ("": qualifying) whole, the others as stubs,
    which keep what chain, tree and signature need and nothing of the content."""
    rows = []
    for record in records:
        content = signed_content(record.content, record.content_sha256)
        is_whole = content is not None and counts(content, len(record.content), race_id)
        rows.append(log_row(record, None if is_whole else "unreleased"))
    return rows


CALLERS_MAX = 20_000  # remembered at once; beyond it those that were not seen for longest are forgotten


class ShareRules(msgspec.Struct, frozen=True, kw_only=True):
    """One caller's share. A race of 64 agents over 90 problems is some 70 MB of rows."""

    requests_per_s: float = 10.0
    requests_burst: int = 200
    bytes_per_s: float = 16 * 2**20
    bytes_burst: int = 128 << 20


class Shares:
    """The shares of all callers, strangers' addresses at the door and the reads among them. Those not seen for long are
    full again, so forgetting them loses nothing; memory is bounded by CALLERS_MAX of them."""

    def __init__(self, rules: ShareRules, monotonic: Callable[[], float]) -> None:
        self._rules, self._monotonic = rules, monotonic
        self._left: dict[str, tuple[float, float, float]] = {}  # requests, bytes, and when they were counted

    def spend_request(self, caller: str) -> None:
        """Take one request. Raises ArenaError V2112 when the share is used up."""
        requests, size, now_s = self._filled(caller)
        if requests < 1:
            raise ArenaError("V2112", f"{self._rules.requests_per_s:g} requests a second")
        self._left[caller] = (requests - 1, size, now_s)

    def spend_bytes(self, caller: str, size: int) -> float:
        """Take `size` bytes that are about to be sent; the seconds to wait before sending more."""
        requests, left, now_s = self._filled(caller)
        self._left[caller] = (requests, left - size, now_s)
        return max(0.0, (size - left) / self._rules.bytes_per_s)

    def _filled(self, caller: str) -> tuple[float, float, float]:
        now_s, rules = self._monotonic(), self._rules
        if len(self._left) > CALLERS_MAX:
            by_age = sorted(self._left.items(), key=lambda item: item[1][2])
            self._left = dict(by_age[CALLERS_MAX // 2 :])
        requests, size, read_s = self._left.get(caller, (rules.requests_burst, rules.bytes_burst, now_s))
        passed_s = max(0.0, now_s - read_s)
        return (
            min(rules.requests_burst, requests + passed_s * rules.requests_per_s),
            min(rules.bytes_burst, size + passed_s * rules.bytes_per_s),
            now_s,
        )
