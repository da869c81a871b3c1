"""Signed checkpoints of a validator's log, as C2SP checkpoint text (c2sp.org/tlog-checkpoint, signed-note).

A checkpoint says: this log had `size` records and this RFC 9162 root. Kept outside the database, it shows a cut tail
and a rewritten log, which the chain alone can't. The entries of the tree are the records' signing messages. sr25519 has
no number in signed-note: the key id is that of an "other" type (0xff) named by `KEY_TYPE`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

import msgspec

from arena.chain.port import Signer, Verifier
from arena.records.log.merkle import MerkleFrontier
from foundation.errors import ArenaError

ORIGIN_PREFIX = "agent-arena/log/1/"
KEY_TYPE = b"\xffsr25519"
KEY_ID_BYTES = 4


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one validator's log. `root` is hex."""

    validator: str
    size: int
    root: str


def checkpoint_of(validator: str, tree: MerkleFrontier) -> Checkpoint:
    """The checkpoint of a tree over a validator's records."""
    return Checkpoint(validator=validator, size=tree.size, root=tree.root().hex())


def sign_checkpoint(checkpoint: Checkpoint, signer: Signer) -> str:
    """The signed note. Its text begins with the origin, which is the signature's domain tag."""
    text = _text(checkpoint)
    signature = _key_id(signer.hotkey) + signer.sign(text.encode())
    return f"{text}\n— {_origin(signer.hotkey)} {base64.b64encode(signature).decode()}\n"


def read_checkpoint(note: str, verify_signature: Verifier) -> Checkpoint:
    """The checkpoint of a signed note. Raises ArenaError V2050 when it is malformed or not signed by its validator."""
    text, gap, signatures = note.partition("\n\n")
    lines = text.split("\n")
    try:
        origin, size, root = lines[:3]
        checkpoint = Checkpoint(
            validator=origin.removeprefix(ORIGIN_PREFIX),
            size=int(size),
            root=base64.b64decode(root, validate=True).hex(),
        )
    except (ValueError, binascii.Error) as error:
        raise ArenaError("V2050", f"checkpoint: {error}") from error
    if not gap or checkpoint.size < 0 or text + "\n" != _text(checkpoint):
        raise ArenaError("V2050", "checkpoint: not in canonical form")
    marker, key_id = f"— {origin} ", _key_id(checkpoint.validator)
    *lines, last = signatures.split("\n")
    for line in lines if not last else ():
        if not line.startswith(marker):
            continue
        encoded = line[len(marker) :]
        try:
            signature = base64.b64decode(encoded, validate=True)
        except (ValueError, binascii.Error):
            continue
        if not signature.startswith(key_id) or base64.b64encode(signature).decode() != encoded:
            continue
        if verify_signature(checkpoint.validator, f"{text}\n".encode(), signature[KEY_ID_BYTES:]):
            return checkpoint
    raise ArenaError("V2050", f"checkpoint: no valid signature of {checkpoint.validator}")


def _origin(validator: str) -> str:
    return ORIGIN_PREFIX + validator


def _key_id(validator: str) -> bytes:
    return hashlib.sha256(_origin(validator).encode() + b"\n" + KEY_TYPE + validator.encode()).digest()[:KEY_ID_BYTES]


def _text(checkpoint: Checkpoint) -> str:
    root = base64.b64encode(bytes.fromhex(checkpoint.root)).decode()
    return f"{_origin(checkpoint.validator)}\n{checkpoint.size}\n{root}\n"
