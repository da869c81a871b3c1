"""What validators ask each other: typed questions, the answer that each has, and how they are asked over HTTP.

Nothing that comes back is believed; every answer is checked by its reader against a hash the
reader had before (on chain, or in a checked note). A peer that is away, refuses or lies costs its answer and is named;
it is never an error of ours. `arena/race/AGREEMENT.md` says what the answers are for.

Requests are signed, and answers cost bounded memory and time, from any sender: no redirect, proxy or compressed answer
is followed; an answer over its size or a line over its length ends the connection; a peer that does not answer counts
as away. Of an answer only its form is checked here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar, Generic, TypeVar, cast
from urllib.parse import urlencode

import httpx2
import msgspec

from arena.chain.keys import HttpAuth
from arena.exchange.operator_files import PIECE_BYTES, RELEASE_BYTES_MAX, Sha256, SignedRelease
from arena.export.files import read_row
from arena.export.model import LogRow
from arena.records.log import Checkpoint, LogStart
from arena.records.model import SettlementRecord
from arena.submissions.submission import SUBMISSION_BYTES_MAX, SignedSubmission
from foundation.bounded_http import Lines, UnfitAnswerError, answering, read_whole
from foundation.canonical import UNREADABLE_JSON, read_canonical
from foundation.codes import PEER_AWAY, PEER_LACKS, PEER_LIED, PEER_REFUSED
from foundation.durable_files import coded
from foundation.errors import ArenaError, Failure

# Limits of the protocol: the same for everybody, since they decide which logs can be held at all.
ROW_BYTES_MAX = 256 << 10  # content of a record that may count; a larger one never does
LINE_BYTES_MAX = ROW_BYTES_MAX + (4 << 10)
NOTE_BYTES_MAX = 16 << 10

Answer = TypeVar("Answer", covariant=True)
_Hotkey = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9]{1,128}$")]
_Race = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{0,128}$")]
_Seq = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A validator and where it answers. `endpoint` is an `http(s)://host:port` URL; "" where none is known."""

    hotkey: str
    endpoint: str


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """A peer and what was wrong with its answer."""

    peer: str
    failure: Failure


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a validator says of a race before its settlement: which pairs are done, never how.
    Of a race that it does not run it says its rules alone."""

    policy_sha256: Annotated[str, msgspec.Meta(max_length=64)]
    guest_sha256: Annotated[str, msgspec.Meta(max_length=64)]
    done: tuple[tuple[str, str], ...] = ()  # (agent version id, problem id)


class Question(msgspec.Struct, Generic[Answer], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question that has one answer, or none where the peer does not have it, or may not show it yet.

    `kind` is its name on the wire, `answer` the type of what comes back, `bytes_max` how long that may be.
    """

    kind: ClassVar[str]
    answer: ClassVar[type]
    bytes_max: ClassVar[int]


class NoteQuestion(Question[str], frozen=True, kw_only=True):
    """The signed checkpoint of a validator with this hash, or the newest one that the peer holds; also of others."""

    kind = "note"
    answer = str
    bytes_max = 2 * NOTE_BYTES_MAX
    validator: _Hotkey
    sha256: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""


class SubmissionQuestion(Question[SignedSubmission], frozen=True, kw_only=True):
    """The submission behind a hotkey's commitment on chain."""

    kind = "submission"
    answer = SignedSubmission
    bytes_max = SUBMISSION_BYTES_MAX
    hotkey: _Hotkey
    sha256: Sha256


class SettlementQuestion(Question[SettlementRecord], frozen=True, kw_only=True):
    """The settlement the peer holds in force for a race, its own or adopted. The reader checks its hash against what
    the chain holds."""

    kind = "settlement"
    answer = SettlementRecord
    bytes_max = 8 << 20
    race: _Race


class ProgressQuestion(Question[Progress], frozen=True, kw_only=True):
    """How far the peer is with a race, and by which rules it races."""

    kind = "progress"
    answer = Progress
    bytes_max = 16 << 20
    race: _Race


class ReleaseQuestion(Question[SignedRelease], frozen=True, kw_only=True):
    """The newest release of the operator's files that the peer knows, unless it is the one with the hash `known`."""

    kind = "release"
    answer = SignedRelease
    bytes_max = RELEASE_BYTES_MAX
    known: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""


class FileQuestion(Question[bytes], frozen=True, kw_only=True):
    """A piece (4 MiB, or what is left) of one of the operator's files from byte `start` on."""

    kind = "file"
    answer = bytes
    bytes_max = PIECE_BYTES
    sha256: Sha256
    start: _Seq = 0


class RowsQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows after+1 .. to of a log, or the first of them: whole (without bodies) for records of `race` ("" for
    qualifying) that count (`arena.exchange.log_digest.counts`), stubs for all others. Ask again behind the last one for
    the rest."""

    kind: ClassVar[str] = "rows"
    validator: _Hotkey
    after: _Seq = 0
    to: _Seq
    race: _Race = ""


QUESTIONS: dict[str, type[msgspec.Struct]] = {
    one.kind: one
    for one in (NoteQuestion, SubmissionQuestion, SettlementQuestion, ProgressQuestion, ReleaseQuestion, FileQuestion)
} | {RowsQuestion.kind: RowsQuestion}


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """Some records of a log, in order: how many, and `arena.exchange.log_digest.extend` over number and hash of
    each."""

    rows: int = 0
    rows_sha256: str = ""


class LogDigest(msgspec.Struct, frozen=True, kw_only=True):
    """Which records of a log count for a race ("": qualifying), as its author says in the note it anchors.

    A stub says nothing about what it hides, so without this an author could show a record to some readers and hide it
    from others, and honest validators would settle differently. With it a log is held whole or not at all. `start` is
    where the records that count begin (the log's size where none do): readers begin there, and need nothing of before,
    since the anchored root shows whether its peaks are those of this log.
    """

    race_id: str
    count: Count
    start: LogStart


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a validator says of its log in a note that the chain holds: its checkpoint, and its digest for a race."""

    note: str
    point: Checkpoint
    due: LogDigest


CONNECT_S, SILENCE_S, ANSWER_S = 5.0, 20.0, 30.0
CONNECTIONS = 512  # 128 validators may each keep some of them waiting
_REFUSAL_BYTES_MAX = 16 << 10


class ServedRefusal(msgspec.Struct):
    """What a client reads of an answer that is an error."""

    code: str
    message: str = ""


class HttpPeers:
    """The other validators at the addresses they publish. Close it when done.

    Asking raises ArenaError U3040 where the peer is away, U3041 where it refuses, U3042 for what can't be an answer.
    """

    def __init__(self, auth: HttpAuth, *, silence_s: float = SILENCE_S, answer_s: float = ANSWER_S) -> None:
        """`silence_s` without a byte, and `answer_s` for a whole answer that is not rows, count as absence."""
        self._auth, self._answer_s = auth, answer_s
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(silence_s, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
            follow_redirects=False,
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Drop every connection."""
        await self._client.aclose()

    async def ask(self, peer: Peer, question: Question[Answer]) -> Answer | None:
        """The answer; None where the peer does not have it."""
        try:
            async with asyncio.timeout(self._answer_s), self._answer(peer, question) as answer:
                content = await read_whole(answer, question.bytes_max)
        except TimeoutError as error:
            raise ArenaError(PEER_AWAY, f"{peer.hotkey}: no answer within {self._answer_s:g} s") from error
        except _UnknownError:
            return None
        with coded(f"{peer.hotkey}: {question.kind}", PEER_LIED):
            found: Any = content if question.answer is bytes else read_canonical(content, question.answer)
        return cast("Answer", found)

    async def rows(self, peer: Peer, question: RowsQuestion) -> AsyncGenerator[LogRow]:
        """The rows, in order. Memory is bounded by a line; time is its reader's to bound."""
        lines = Lines(LINE_BYTES_MAX)
        async with self._answer(peer, question) as answer:
            async for piece in answer.aiter_raw():
                for line in lines.feed(piece):
                    try:
                        row = read_row(line)
                    except ArenaError as error:
                        raise ArenaError(PEER_LIED, f"{peer.hotkey}: no row: {error.failure.detail[:200]}") from error
                    yield row
            if lines.is_within_one:
                raise ArenaError(PEER_AWAY, f"{peer.hotkey}: the answer ended within a row")

    @asynccontextmanager
    async def _answer(self, peer: Peer, question: Question[Answer] | RowsQuestion) -> AsyncIterator[httpx2.Response]:
        """An answer of 200, to be read. Raises ArenaError U3040 to U3042, _UnknownError."""
        if not peer.endpoint:
            raise ArenaError(PEER_AWAY, f"{peer.hotkey} publishes no address")
        target = f"/v1/exchange/{question.kind}?{urlencode(msgspec.to_builtins(question))}"
        headers = self._auth.sign("GET", target, peer.hotkey)
        try:
            async with answering(self._client, "GET", peer.endpoint.rstrip("/") + target, headers=headers) as answer:
                if answer.status_code != httpx2.codes.OK:
                    raise await _refused(peer, answer)
                yield answer
        except UnfitAnswerError as error:
            raise ArenaError(PEER_LIED, f"{peer.hotkey}: {error}") from error
        except (httpx2.TransportError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise ArenaError(PEER_AWAY, f"{peer.hotkey}: {str(error) or type(error).__name__}") from error


class _UnknownError(ArenaError):
    """The peer does not have it, or may not show it yet."""


async def _refused(peer: Peer, answer: httpx2.Response) -> ArenaError:
    """What an answer other than 200 means."""
    content = await read_whole(answer, _REFUSAL_BYTES_MAX)
    try:
        refusal = msgspec.json.decode(content, type=ServedRefusal)
    except UNREADABLE_JSON:
        return ArenaError(PEER_AWAY, f"{peer.hotkey}: status {answer.status_code}")
    detail = f"{peer.hotkey}: {refusal.code[:8]} {refusal.message[:200]}"
    if answer.status_code >= 500:
        return ArenaError(PEER_AWAY, detail)
    return (_UnknownError if refusal.code == PEER_LACKS else ArenaError)(PEER_REFUSED, detail)
