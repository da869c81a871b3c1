"""One validator's log, as pure functions (docs/architecture.md#records): its hash chain, tree, signed states, the walk
along it, and what records commit to before it may be shown.

hash(0) = sha256(validator), hash(n) = sha256(hash(n-1) || sha256(content n)). The signature covers domain tag,
length-prefixed validator, seq, hash(n-1) and sha256(content n): never an id, never the content itself. A chain does not
show that its tail was cut: checkpoints do. The tree is that of RFC 9162 section 2.1: leaf hash sha256(0x00 || entry),
node hash sha256(0x01 || left || right), empty tree sha256(""). A growing one is kept as the roots of its complete
subtrees, one hash per bit of the size; `arena.records.proof` makes proofs, `arena.records.verify_proof` checks them.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from arena.chain.keys import canonical_hotkey
from arena.chain.port import Commitment, Signer, Verifier
from arena.records.model import SIGNATURE_DOMAIN, Envelope, Head, StoredCheckpoint
from foundation.errors import ArenaError

SEQ_BYTES = 8
LENGTH_BYTES = 2


def first_head(validator: str) -> Head:
    """The head of an empty log."""
    return Head(0, hashlib.sha256(validator.encode()).hexdigest())


def message_of(record: Envelope) -> bytes:
    """The bytes that the signature of a record covers; also its leaf in the Merkle log."""
    name = record.validator.encode()
    return b"".join(
        (
            SIGNATURE_DOMAIN,
            len(name).to_bytes(LENGTH_BYTES, "big"),
            name,
            record.seq.to_bytes(SEQ_BYTES, "big"),
            bytes.fromhex(record.prev),
            bytes.fromhex(record.content_sha256),
        )
    )


def head_after(record: Envelope) -> Head:
    """The head once this record is in the log: its number, and hash(n)."""
    hashed = hashlib.sha256(bytes.fromhex(record.prev) + bytes.fromhex(record.content_sha256))
    return Head(record.seq, hashed.hexdigest())


ORIGIN_PREFIX = "agent-arena/log/1/"
KEY_TYPE = b"\xffsr25519"
KEY_ID_BYTES = 4


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one validator's log. `root` is hex."""

    validator: str
    size: int
    root: str


def sign_checkpoint(checkpoint: Checkpoint, signer: Signer) -> str:
    """The signed note. Its text begins with the origin, which is the signature's domain tag."""
    text = _text(checkpoint)
    return f"{text}\n{note_line(ORIGIN_PREFIX + signer.hotkey, signer.hotkey, signer.sign(text.encode()))}"


def read_checkpoint(note: str, verify_signature: Verifier) -> Checkpoint:
    """The checkpoint of a signed note. Raises ArenaError V2050 when it is malformed or not signed by its validator."""
    text, gap, _ = note.partition("\n\n")
    try:
        origin, size, root = text.split("\n")[:3]
        checkpoint = Checkpoint(
            validator=origin.removeprefix(ORIGIN_PREFIX),
            size=int(size),
            root=base64.b64decode(root, validate=True).hex(),
        )
    except ValueError as error:
        raise ArenaError("V2050", f"checkpoint: {error}") from error
    if not gap or checkpoint.size < 0 or text + "\n" != _text(checkpoint):
        raise ArenaError("V2050", "checkpoint: not in canonical form")
    for signature in read_note_lines(note, origin, checkpoint.validator):
        if verify_signature(checkpoint.validator, f"{text}\n".encode(), signature):
            return checkpoint
    raise ArenaError("V2050", f"checkpoint: no valid signature of {checkpoint.validator}")


def note_line(name: str, validator: str, content: bytes) -> str:
    """A signature line of a note: the key's name, its id, and what it signs with."""
    key_id = hashlib.sha256(name.encode() + b"\n" + KEY_TYPE + validator.encode()).digest()[:KEY_ID_BYTES]
    return f"— {name} {base64.b64encode(key_id + content).decode()}\n"


def read_note_lines(note: str, name: str, validator: str) -> list[bytes]:
    """What the signature lines of a note hold under that name of a validator's key; malformed lines are passed over."""
    found, (*lines, last) = list[bytes](), note.partition("\n\n")[2].split("\n")
    for line in lines if not last else ():
        with contextlib.suppress(ValueError):
            content = base64.b64decode(line.removeprefix(f"— {name} "), validate=True)[KEY_ID_BYTES:]
            found += [content] if note_line(name, validator, content) == f"{line}\n" else []
    return found


def _text(checkpoint: Checkpoint) -> str:
    root = base64.b64encode(bytes.fromhex(checkpoint.root)).decode()
    return f"{ORIGIN_PREFIX}{checkpoint.validator}\n{checkpoint.size}\n{root}\n"


SHA256 = re.compile("[0-9a-f]{64}")  # as it is written everywhere


class LogStart(msgspec.Struct, frozen=True, kw_only=True):
    """A point of one log: after record `after_seq`, with the hash of that record and the tree's peaks, hex, largest
    first. The beginning of a log is `LogStart(validator=...)`."""

    validator: str
    after_seq: int = 0
    head: str = ""  # hash of record `after_seq`; "" at the beginning
    peaks: tuple[str, ...] = ()  # roots of the complete subtrees


class LogWalk:
    """Where one log stands after the records that were taken."""

    def __init__(self, start: LogStart) -> None:
        """Raises ArenaError V2050 for a start that is malformed."""
        hashes = (start.head, *start.peaks) if start.after_seq or start.head else start.peaks
        if wrong := [text for text in hashes if not SHA256.fullmatch(text)]:
            raise ArenaError("V2050", f"the start of {start.validator} holds {wrong[0]!r}, which is not a sha256")
        if not start.after_seq and start.head:
            raise ArenaError("V2050", f"the start of {start.validator} names a record before the first")
        self.tree = MerkleFrontier(start.after_seq, [bytes.fromhex(peak) for peak in start.peaks])
        self.validator = start.validator
        self.head = Head(start.after_seq, start.head) if start.after_seq else first_head(start.validator)
        self.is_whole = start.after_seq == 0  # it went over every record of the log

    @classmethod
    def behind(cls, validator: str, after_seq: int, prev: str) -> LogWalk:
        """A walk from a record whose hash is taken as it is. Its root says nothing, unless it begins at the first."""
        if not after_seq:
            return cls(LogStart(validator=validator))
        peaks = ("00" * HASH_BYTES,) * after_seq.bit_count()
        return cls(LogStart(validator=validator, after_seq=after_seq, head=prev, peaks=peaks))

    @property
    def seq(self) -> int:
        """The number of the last record taken."""
        return self.head.seq

    @property
    def checkpoint(self) -> Checkpoint:
        """The state of the log up to here."""
        return Checkpoint(validator=self.validator, size=self.tree.size, root=self.tree.root().hex())

    def position(self) -> LogStart:
        """Where the walk stands, as the point where another can begin."""
        peaks = tuple(peak.hex() for peak in self.tree.peaks)
        return LogStart(
            validator=self.validator, after_seq=self.seq, head=self.head.hash if self.seq else "", peaks=peaks
        )

    def misplaced(self, record: Envelope) -> tuple[Literal["sequence", "chain"], str] | None:
        """Why a record does not come next; None where it does."""
        if record.seq != self.seq + 1:
            return "sequence", f"record {self.seq + 1} was expected here, {record.seq} came"
        return None if record.prev == self.head.hash else ("chain", f"it does not follow record {self.seq}")

    def take(self, record: Envelope) -> None:
        """Go over a record, in its place or not."""
        self.tree.append(message_of(record))
        self.head = head_after(record)

    def follow(self, record: Envelope) -> None:
        """Go over the next record. Raises ArenaError V2050 when it does not follow the last one."""
        if wrong := self.misplaced(record):
            raise ArenaError("V2050", f"{self.validator}: record {record.seq}: {wrong[1]}")
        self.take(record)


def note_sha256(note: str) -> str:
    """What the chain holds of a signed note: sha256 (hex) of its UTF-8 bytes."""
    return hashlib.sha256(note.encode()).hexdigest()


def committed_checkpoint(
    checkpoints: Iterable[StoredCheckpoint], commitment: Commitment | None
) -> StoredCheckpoint | None:
    """The one of a hotkey's checkpoints that its commitment holds; None for an empty slot or another hash."""
    held = (commitment.hotkey, commitment.sha256) if commitment else None
    return next((point for point in checkpoints if (point.validator, note_sha256(point.note)) == held), None)


def require_anchor(
    checkpoint: StoredCheckpoint, commitment: Commitment | None, verify_signature: Verifier
) -> Checkpoint:
    """The checkpoint, proven: signed by its validator, and held by the chain in the block that its anchor names.

    `commitment` is the chain's answer for the validator's hotkey at `checkpoint.anchor_block`. Raises ArenaError V2050
    for a note that is malformed, not signed by its validator or not the one it is stored as, and for a commitment that
    is missing, of another hotkey or block, or of another hash.
    """
    signed = read_checkpoint(checkpoint.note, verify_signature)
    if (signed.validator, signed.size) != (checkpoint.validator, checkpoint.size):
        raise ArenaError("V2050", f"checkpoint {checkpoint.size} holds the note of {signed.validator} {signed.size}")
    is_held = commitment is not None and committed_checkpoint([checkpoint], commitment) is not None
    if commitment is None or not is_held or not 0 < checkpoint.anchor_block == commitment.block:
        held = f"{commitment.sha256[:16]} of block {commitment.block}" if commitment else "nothing"
        about = f"checkpoint {checkpoint.size} of {checkpoint.validator}, block {checkpoint.anchor_block}"
        raise ArenaError("V2050", f"{about}: the chain holds {held}")
    return signed


HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()

LeafRange = tuple[int, int]  # leaves first..end-1, counted from 0


def leaf_hash(entry: bytes) -> bytes:
    """Hash of one leaf."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class MerkleFrontier:
    """A growing tree, reduced to what its root needs. Appending costs one or two hashes on average.

    `size` and `peaks` continue a tree from where another one stood; `peaks` are the roots of its complete subtrees,
    largest first, one per set bit of `size`. Raises ArenaError V2050 when the two do not fit each other.
    """

    def __init__(self, size: int = 0, peaks: Sequence[bytes] = ()) -> None:
        if size < 0 or size.bit_count() != len(peaks) or any(len(peak) != HASH_BYTES for peak in peaks):
            raise ArenaError("V2050", f"a tree of {size} leaves does not have these {len(peaks)} peaks")
        self.size, self.peaks = size, list(peaks)

    def append(self, entry: bytes) -> None:
        """Add one entry (not its hash)."""
        peak, size = leaf_hash(entry), self.size
        while size & 1:  # a pair is complete
            peak = node_hash(self.peaks.pop(), peak)
            size >>= 1
        self.peaks.append(peak)
        self.size += 1

    def root(self) -> bytes:
        """Root over everything appended so far."""
        if not self.peaks:
            return EMPTY_ROOT
        *larger, root = self.peaks
        for peak in reversed(larger):
            root = node_hash(peak, root)
        return root


def inclusion_ranges(index: int, size: int) -> list[LeafRange]:
    """The subtrees whose roots prove leaf `index` in a tree of `size`, in proof order. RFC 9162 section 2.1.3.1.

    Raises ValueError unless 0 <= index < size.
    """
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    start, end, found = 0, size, list[LeafRange]()
    while end - start > 1:
        middle = split_at(start, end)
        found.append((middle, end) if index < middle else (start, middle))
        start, end = (start, middle) if index < middle else (middle, end)
    return found[::-1]


def consistency_ranges(first: int, second: int) -> list[LeafRange]:
    """The subtrees whose roots prove that a tree of `second` leaves begins with one of `first`: the older one's last
    complete subtree, unless that is all of it, and what stands beside it. RFC 9162 section 2.1.4.1.

    Raises ValueError unless 0 < first <= second.
    """
    if not 0 < first <= second:
        raise ValueError(f"there is no proof from {first} to {second} leaves")
    unit = first & -first  # leaves of that subtree
    beside = inclusion_ranges(first // unit - 1, -(-second // unit))
    ranges = [(start * unit, min(end * unit, second)) for start, end in beside]
    return ranges if first == unit else [(first - unit, first), *ranges]


def split_at(start: int, end: int) -> int:
    """Where the right half of a subtree of two leaves or more begins: its left one is the largest power of two."""
    return start + (1 << ((end - start - 1).bit_length() - 1))


def agent_version_id(hotkey: str, source_sha256: str) -> str:
    """sha256 hex of (hotkey, newline, source sha256)."""
    return hashlib.sha256(f"{canonical(hotkey)}\n{source_sha256}".encode()).hexdigest()


def commitment_sha256(hotkey: str, source: str) -> str:
    """sha256 hex of (ss58 address with prefix 42) followed by the source's UTF-8 bytes."""
    return hashlib.sha256(canonical(hotkey).encode() + source.encode()).hexdigest()


def cluster_commitment(salt: str, problem_id: str, cluster: str) -> str:
    """The commitment (hex) that says of a public problem which cluster it belongs to, once the salt is known."""
    return commitment(salt, "cluster", f"{problem_id}\n{cluster}".encode())


def commitment(salt: str, label: str, content: bytes) -> str:
    """HMAC-SHA256 (hex) under the hex salt: public before release, checkable after it. The label keeps a problem's
    commitment from passing for a cluster's."""
    text = f"agent-arena/{label}/1\n{hashlib.sha256(content).hexdigest()}"
    return hmac.new(bytes.fromhex(salt), text.encode(), hashlib.sha256).hexdigest()


def canonical(hotkey: str) -> str:
    """The hotkey in its one spelling; any other text as it is."""
    return canonical_hotkey(hotkey) or hotkey
