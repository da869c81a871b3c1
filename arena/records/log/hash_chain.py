"""The hash chain of one validator's log, as pure functions (docs/architecture.md#records).

hash(0) = sha256(validator), hash(n) = sha256(hash(n-1) || sha256(content n)). The signature covers domain tag,
length-prefixed validator, seq, hash(n-1) and sha256(content n): never an id, never the content itself. A chain does not
show that its tail was cut: checkpoints do.
"""

from __future__ import annotations

import hashlib

from arena.records.model import SIGNATURE_DOMAIN, Head, SignedRecord

SEQ_BYTES = 8
LENGTH_BYTES = 2


def first_head(validator: str) -> Head:
    """The head of an empty log."""
    return Head(0, hashlib.sha256(validator.encode()).hexdigest())


def record_hash(prev: str, content_sha256: str) -> str:
    """hash(n) from hash(n-1) and the content's sha256, all lower-case hex."""
    return hashlib.sha256(bytes.fromhex(prev) + bytes.fromhex(content_sha256)).hexdigest()


def signing_message(validator: str, seq: int, prev: str, content_sha256: str) -> bytes:
    """The bytes a record's signature covers; also its leaf in the Merkle log."""
    name = validator.encode()
    return b"".join(
        (
            SIGNATURE_DOMAIN,
            len(name).to_bytes(LENGTH_BYTES, "big"),
            name,
            seq.to_bytes(SEQ_BYTES, "big"),
            bytes.fromhex(prev),
            bytes.fromhex(content_sha256),
        )
    )


def head_after(record: SignedRecord) -> Head:
    """The head once this record is in the log."""
    return Head(record.seq, record_hash(record.prev, record.content_sha256))
