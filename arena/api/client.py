"""The client of the live tail: the rows of a log on another machine, each checked as it comes.

A row is handed on only after its number, link, hash, signature and body were checked against the row before; a break
is V2050 and ends the stream. A connection that ends is opened again behind the last row, with growing pauses. The first
row's `prev` is taken as it is, unless the stream begins at the first record: compare the head with a signed checkpoint.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Annotated

import httpx2
import msgspec

from arena.chain.port import Verifier
from arena.exchange.port import ServedRefusal
from arena.export.files import read_row
from arena.export.model import LogRow
from arena.records.inspection import inspect
from arena.records.log import LogWalk
from arena.records.model import entry_of
from foundation.backoff import Backoff
from foundation.bounded_http import BoundedClient, Lines, UnfitAnswerError
from foundation.canonical import UNREADABLE_JSON
from foundation.codes import TAIL_BAD_REQUEST, TAIL_LACKS
from foundation.errors import ArenaError

LINE_BYTES_MAX = 32 << 20
SILENCE_S = 60.0  # heartbeats come every 15
CONNECT_S, ANSWER_S, ANSWER_BYTES_MAX = 10.0, 60.0, 16 << 20  # of an answer that is not rows
PAUSES = Backoff(first_ms=500, most_ms=30_000)
TRIES_MAX = 5  # connections in a row without a row, of a client that does not follow


class _LogSize(msgspec.Struct, frozen=True):
    validator: str
    seq: Annotated[int, msgspec.Meta(ge=0)]


class RowCheck:
    """Checks the rows of one log as they come."""

    def __init__(self, validator: str, after: int, verify_signature: Verifier) -> None:
        """`validator` "": whichever the first row names."""
        self.validator, self._begins_after, self._verify = validator, after, verify_signature
        self.walk: LogWalk | None = None  # over the rows so far, from the first on

    @property
    def after(self) -> int:
        """The number of the last row."""
        return self.walk.seq if self.walk else self._begins_after

    def check(self, line: bytes) -> LogRow:
        """The row of one line. Raises ArenaError V2084 for what is no row, V2050 for one that does not fit the log."""
        try:
            row = read_row(line)
        except ArenaError as error:
            raise ArenaError("V2084", f"not a row: {error.failure.detail}") from error
        about = f"record {row.seq} of {row.validator}"
        if self.validator not in ("", row.validator):
            raise ArenaError("V2050", f"{about} came after record {self.after} of {self.validator}")
        if (row.content is None) != (row.withheld is not None):
            raise ArenaError("V2050", f"{about} is neither whole nor a stub with its reason")
        finding = inspect(entry_of(row, row.content, row.body), self._verify)
        if finding.faults:
            raise ArenaError("V2050", f"{about}: {finding.faults[0][1]}")
        walk = self.walk or LogWalk.behind(row.validator, self._begins_after, row.prev)
        walk.follow(row)
        self.walk, self.validator = walk, row.validator
        return row


@dataclasses.dataclass(eq=False)
class TailClient:
    """Reads the tail at one base URL. `tell` hears of pauses; `silence_s` without a byte, and `answer_s` for a whole
    answer that is not rows, count as a connection that ended."""

    url: str
    verify_signature: Verifier
    sleep: Callable[[float], None]
    tell: Callable[[str], None] = lambda text: None
    silence_s: float = SILENCE_S
    answer_s: float = ANSWER_S

    def heads(self) -> dict[str, int]:
        """The size of every log served there. Raises ArenaError V2084."""
        try:
            with self._open() as http:
                answer = http.ask("GET", "/v1/head", bytes_max=ANSWER_BYTES_MAX, within_s=self.answer_s)
            answer.raise_for_status()
            return {row.validator: row.seq for row in msgspec.json.decode(answer.content, type=list[_LogSize])}
        except (httpx2.HTTPError, httpx2.InvalidURL, UnfitAnswerError, *UNREADABLE_JSON) as error:
            raise ArenaError("V2084", f"{self.url}: {str(error) or type(error).__name__}") from error

    def lines(self, validator: str = "", *, after: int = 0, is_following: bool = False) -> Iterator[bytes]:
        """Checked lines of `LogRow`, without their ends, in order.

        Follows for ever, or ends at the log's end. Raises ArenaError V2050 for a break in the log
        (also when it ends before a row that was read), V2081 and V2082 for a request that is refused, and V2084 for a
        server that is away, five times in a row unless following, or speaks something else.
        """
        checked = RowCheck(validator, after, self.verify_signature)
        failures = 0
        while True:
            try:
                for line in self._connection(checked, is_following=is_following):
                    failures = 0
                    yield line
                if not is_following:
                    return
                reason = "the server ended the stream"
            except _AwayError as away:
                failures += 1
                reason = str(away)
                if not is_following and failures >= TRIES_MAX:
                    raise ArenaError("V2084", f"{self.url}: {reason}") from away
            seconds = PAUSES.pause_ms(failures + 1) / 1000 * random.uniform(0.5, 1.0)
            self.tell(f"waiting {seconds:.1f} s to go on after record {checked.after}: {reason}")
            self.sleep(seconds)

    def _connection(self, checked: RowCheck, *, is_following: bool) -> Iterator[bytes]:
        """The checked lines of one connection. Raises _AwayError when it ends early or can't be had."""
        parameters = {"after": str(checked.after), "validator": checked.validator, "follow": str(is_following)}
        try:
            with self._open() as http, http.stream("GET", "/v1/tail", params=parameters) as answer:
                if answer.status_code != httpx2.codes.OK:
                    with http.within(self.answer_s, ANSWER_BYTES_MAX):
                        content = answer.read()
                    try:
                        refusal = msgspec.json.decode(content, type=ServedRefusal)
                    except UNREADABLE_JSON:
                        refusal = ServedRefusal(code="", message=f"status {answer.status_code}")
                    if refusal.code == TAIL_LACKS and checked.walk:
                        read = f"record {checked.after} of {checked.validator} was read"
                        raise ArenaError("V2050", f"{read}, and now {refusal.message}")
                    if refusal.code in (TAIL_BAD_REQUEST, TAIL_LACKS):
                        raise ArenaError(refusal.code, refusal.message)
                    if answer.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR:
                        raise _AwayError(f"{refusal.code} {refusal.message}".strip())
                    raise ArenaError("V2084", f"{self.url} answers {answer.status_code}: {refusal.message}")
                lines = Lines(LINE_BYTES_MAX)
                for piece in answer.iter_raw():
                    for line in filter(None, lines.feed(piece)):  # a heartbeat is a line without a row
                        checked.check(line)
                        yield line
                if lines.is_within_one:
                    raise _AwayError("the stream ended within a row")
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise _AwayError(str(error) or type(error).__name__) from error
        except (httpx2.InvalidURL, UnfitAnswerError) as error:
            raise ArenaError("V2084", f"{self.url}: {error}") from error

    def _open(self) -> BoundedClient:
        return BoundedClient(base_url=self.url, silence_s=self.silence_s, connect_s=CONNECT_S)


class _AwayError(Exception):
    """The connection ended, or there was none: try again."""
