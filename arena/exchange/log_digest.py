"""Digests: which records of a log count for a race, said by its author in the note that it anchors.

Pure, but for `take_digest`, which reads one log. A digest is one more signature line of the signed note (C2SP
signed-note: readers pass over lines of keys they don't know), so that the hash on chain covers it and
`arena.records.log` reads the note as before. It is signed for itself, too, over text and digest together.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from arena.chain.port import Signer, Verifier
from arena.exchange.port import NOTE_BYTES_MAX, ROW_BYTES_MAX, Claim, Count, LogDigest
from arena.export.assembly import signed_content
from arena.export.model import LogRow
from arena.records.body import decode_content, is_canonical
from arena.records.inspection import malformation_of
from arena.records.log import LogStart, LogWalk, message_of, note_line, read_note_lines
from arena.records.model import AttemptRecord, EvaluationRecord, GateRecord, RecordContent, VerdictRecord
from foundation.codes import LOG_UNFIT, PEER_LIED
from foundation.errors import ArenaError

if TYPE_CHECKING:
    from arena.store.postgres import PostgresStore

DIGEST_DOMAIN = "agent-arena/tally/1"
COUNTED_KINDS = ("evaluation", "verdict", "attempt", "gate")
_NUMBER_BYTES, _HASH_BYTES, _SIGNATURE_BYTES = 8, 32, 64
_ZERO = "00" * _HASH_BYTES


def counts(content: RecordContent, size_bytes: int, race_id: str) -> bool:
    """True for a record that is shown whole for a race ("": qualifying): an evaluation, a verdict or an attempt of it,
    and for qualifying also what the gate, or a person, said of a submission.

    `size_bytes` is the length of its content; one over `ROW_BYTES_MAX` never counts, for anybody.
    """
    payload = content.payload
    if size_bytes > ROW_BYTES_MAX:
        return False
    if isinstance(payload, GateRecord):
        return not race_id
    if not isinstance(payload, EvaluationRecord | VerdictRecord | AttemptRecord):
        return False
    return payload.context.stage == ("race" if race_id else "qualifying") and payload.context.race_id == race_id


def extend(count: Count, seq: int, content_sha256: str) -> Count:
    """With one more record: h(0) is 32 zero bytes, h(n) = sha256(h(n-1) || seq (8 bytes) || content hash)."""
    before = bytes.fromhex(count.rows_sha256) if count.rows else bytes(_HASH_BYTES)
    added = hashlib.sha256(before + seq.to_bytes(_NUMBER_BYTES, "big") + bytes.fromhex(content_sha256)).hexdigest()
    return Count(rows=count.rows + 1, rows_sha256=added)


async def take_digest(store: PostgresStore, race_id: str, to_seq: int) -> LogDigest:
    """The digest of our own log up to record `to_seq`, for a race or ("") qualifying. Raises V2021."""
    own, count, first_seq = store.validator, Count(), to_seq + 1
    async for record in store.records(own, kinds=COUNTED_KINDS, race_id=race_id):
        if record.seq > to_seq:
            break
        content = signed_content(record.content, record.content_sha256)
        if content and counts(content, len(record.content), race_id):
            first_seq = min(first_seq, record.seq)
            count = extend(count, record.seq, record.content_sha256)
    walk = LogWalk(LogStart(validator=own))
    if first_seq > 1:
        async for leaf in store.leaves(own, to_seq=first_seq - 1):
            walk.take(leaf)
    return LogDigest(race_id=race_id, count=count, start=walk.position())


def add_digest(note: str, digest: LogDigest, signer: Signer) -> str:
    """A signed note with a digest's line: what is to be anchored for a roll."""
    text = note.partition("\n\n")[0]
    name = _key_name(signer.hotkey, digest.race_id)
    signature = signer.sign(_message(text, signer.hotkey, digest))
    return note + note_line(name, signer.hotkey, _statement(digest) + signature)


def read_digest(note: str, validator: str, race_id: str, verify_signature: Verifier) -> LogDigest:
    """The digest of a race in a note whose checkpoint was read. Raises ArenaError U3043 when the note holds none, or
    two, or one that its validator did not sign."""
    found = read_note_lines(note, _key_name(validator, race_id), validator)
    about = f"the note of {validator} for {race_id or 'qualifying'}"
    if len(note.encode()) > NOTE_BYTES_MAX or len(found) != 1:
        raise ArenaError(LOG_UNFIT, f"{about} holds {len(found)} digests")
    digest, text = _stated(found[0][:-_SIGNATURE_BYTES], validator, race_id), note.partition("\n\n")[0]
    if digest is None:
        raise ArenaError(LOG_UNFIT, f"{about}: not a digest")
    if not verify_signature(validator, _message(text, validator, digest), found[0][-_SIGNATURE_BYTES:]):
        raise ArenaError(LOG_UNFIT, f"{about}: the digest is not signed by it")
    return digest


def _key_name(validator: str, race_id: str) -> str:
    return f"{DIGEST_DOMAIN}/{validator}/{race_id or 'qualifying'}"


def _statement(digest: LogDigest) -> bytes:
    """Rows and start as numbers, hash over the rows, hash of the record before the start, its peaks."""
    numbers = (digest.count.rows, digest.start.after_seq)
    hashes = (digest.count.rows_sha256 or _ZERO, digest.start.head or _ZERO, *digest.start.peaks)
    return b"".join(n.to_bytes(_NUMBER_BYTES, "big") for n in numbers) + bytes.fromhex("".join(hashes))


def _stated(statement: bytes, validator: str, race_id: str) -> LogDigest | None:
    """The digest that these bytes state, or None: one digest has one spelling."""
    rows, after_seq = (int.from_bytes(statement[at : at + _NUMBER_BYTES], "big") for at in (0, _NUMBER_BYTES))
    rest = statement[2 * _NUMBER_BYTES :]
    hashes = [rest[at : at + _HASH_BYTES].hex() for at in range(0, len(rest), _HASH_BYTES)]
    if len(rest) != (2 + after_seq.bit_count()) * _HASH_BYTES:
        return None
    start = LogStart(
        validator=validator, after_seq=after_seq, head=hashes[1] if after_seq else "", peaks=tuple(hashes[2:])
    )
    digest = LogDigest(race_id=race_id, count=Count(rows=rows, rows_sha256=hashes[0] if rows else ""), start=start)
    return digest if _statement(digest) == statement else None


def _message(text: str, validator: str, digest: LogDigest) -> bytes:
    """What the line signs: its domain and race, the statement, and the note's text."""
    name = _key_name(validator, digest.race_id)
    return f"{name}\n{_statement(digest).hex()}\n{text}\n".encode()


class SeamError(ArenaError):
    """U3042: the first row does not follow the start: the peer lies, or the log was rewritten since."""


class RowsCheck:
    """Checks rows start.after_seq+1 .. point.size of one log. `at` is the last one taken."""

    def __init__(self, claim: Claim, verify_signature: Verifier, start: LogStart, counted: Count) -> None:
        """`counted` is what was counted up to `start`, where the check begins: the digest's start, or a later point
        that was checked."""
        self._point, self._due, self._verify = claim.point, claim.due, verify_signature
        self._start = start
        self._walk = LogWalk(start)
        self._counted = counted
        self._unfit = ""

    @property
    def at(self) -> int:
        """The number of the last record taken."""
        return self._walk.seq

    def take(self, row: LogRow) -> None:
        """Take the next row. Raises ArenaError U3042 for one that can't stand there; SeamError for a first one that
        does not follow the start."""
        about = f"record {row.seq} of {row.validator}"
        if row.validator != self._point.validator or row.seq != self.at + 1 or row.seq > self._point.size:
            raise ArenaError(PEER_LIED, f"{about} came after record {self.at} of {self._point.validator}")
        if malformed := malformation_of(row):
            raise ArenaError(PEER_LIED, f"{about}: {malformed}")
        if self._walk.misplaced(row):
            detail = f"{about} does not follow record {self.at}"
            raise (SeamError if self.at == self._start.after_seq else ArenaError)(PEER_LIED, detail)
        if (row.content is None) != (row.withheld is not None) or row.body is not None:
            raise ArenaError(PEER_LIED, f"{about} is neither whole nor a stub")
        if row.content is not None:
            self._take_whole(row, bytes(row.content), about)
        self._walk.take(row)

    def finish(self) -> LogStart:
        """Where the log stands at the note's size: another check can begin there.

        Raises ArenaError U3042 when root or digest don't fit, U3043 when they do but a record is none, or where the
        note alone does not fit, without a record.
        """
        name, size = self._point.validator, self._point.size
        code = LOG_UNFIT if self._start.after_seq == size else PEER_LIED
        if self._walk.checkpoint != self._point:
            raise ArenaError(code, f"the {self.at} records of {name} don't have the root of its note of {size}")
        if self._counted != self._due.count:
            detail = f"{self._counted.rows} records of {name} came whole, its note counts {self._due.count.rows}"
            raise ArenaError(code, detail)
        if self._unfit:
            raise ArenaError(LOG_UNFIT, self._unfit)
        return self._walk.position()

    def _take_whole(self, row: LogRow, content: bytes, about: str) -> None:
        if len(content) > ROW_BYTES_MAX or hashlib.sha256(content).hexdigest() != row.content_sha256:
            raise ArenaError(PEER_LIED, f"{about}: the content does not have the hash that is signed")
        if not self._verify(row.validator, message_of(row), bytes.fromhex(row.signature)):
            raise ArenaError(PEER_LIED, f"{about} is not signed by it")
        try:
            read = decode_content(content)
        except ArenaError as error:
            self._unfit = self._unfit or f"{about}: {error.failure.detail}"
        else:
            if not is_canonical(content, read):
                self._unfit = self._unfit or f"{about} is not in canonical form"
            elif not counts(read, len(content), self._due.race_id):
                raise ArenaError(PEER_LIED, f"{about} does not count for {self._due.race_id or 'qualifying'}")
        self._counted = extend(self._counted, row.seq, row.content_sha256)
        if self._counted.rows > self._due.count.rows:
            raise ArenaError(PEER_LIED, f"{about} is whole beyond the {self._due.count.rows} that its note counts")
