"""What validators ask each other: typed questions, and the answer that each has.

Nothing that comes back is believed; every answer is checked by its reader against a hash the
reader had before (on chain, or in a checked note). A peer that is away, refuses or lies costs its answer and is named;
it is never an error of ours. `arena/race/AGREEMENT.md` says what the answers are for.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Generic, TypeVar

import msgspec

from arena.exchange.operator_files import PIECE_BYTES, RELEASE_BYTES_MAX, SignedRelease
from arena.records.log import Checkpoint, LogStart
from arena.records.model import SettlementRecord
from arena.submissions.model import SUBMISSION_BYTES_MAX, SignedSubmission
from foundation.errors import Failure

# Limits of the protocol: the same for everybody, since they decide which logs can be held at all.
ROW_BYTES_MAX = 256 << 10  # content of a record that may count; a larger one never does
LINE_BYTES_MAX = ROW_BYTES_MAX + (4 << 10)
NOTE_BYTES_MAX = 16 << 10

Answer = TypeVar("Answer", covariant=True)
_Hotkey = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9]{1,128}$")]
_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
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
    """What a validator says of a race before its settlement: which pairs are done, never how."""

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
    sha256: _Sha256


class SettlementQuestion(Question[SettlementRecord], frozen=True, kw_only=True):
    """The settlement the peer holds in force for a race, its own or adopted. The reader checks its hash against what
    the chain holds."""

    kind = "settlement"
    answer = SettlementRecord
    bytes_max = 8 << 20
    race: _Race


class ProgressQuestion(Question[Progress], frozen=True, kw_only=True):
    """How far the peer is with a race that it runs."""

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
    sha256: _Sha256
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
