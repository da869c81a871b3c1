"""Check a proof about one record of a validator's log. One file and one package, which checks signatures.

    pip install bittensor-core
    python verify_proof.py PROOF [--content FILE] [--note FILE ...]

It shows that the validator signed the record, that FILE is what the record holds, that the record stands in the log
whose state the validator signed in a checkpoint, and, where the proof names an older checkpoint, that no record which
that one covers was changed since. --note: a checkpoint you hold from elsewhere, which the proof must be about; without
one you don't know that others are shown the same log. Exit code 0: it holds. 1: it does not. 2: usage.
Sources: RFC 9162 section 2.1 (tree), C2SP signed-note and tlog-checkpoint.
"""

# ruff: noqa: D103

import argparse
import base64
import hashlib
import json
import pathlib
import sys

import bittensor_core

FORMAT, RECORD_DOMAIN, ORIGIN = "agent-arena/proof/1", b"agent-arena/record/1", "agent-arena/log/1/"
FIELDS = {"format", "validator", "seq", "prev", "content_sha256", "signature", "checkpoint", "inclusion", "older"}


def require(is_true: object, why: str) -> None:
    if not is_true:
        raise ValueError(why)


def require_signed(address: str, message: bytes, signature: bytes, what: str) -> None:
    """An sr25519 signature in Substrate's context, by the key of an ss58 address."""
    is_signed = bittensor_core.verify(message, signature, address, bittensor_core.CRYPTO_SR25519)
    require(is_signed, f"{what} is not signed by {address}")


def fold(index: int, last: int, path: list[bytes], start: bytes) -> tuple[bytes, bytes]:
    """From a leaf or subtree to the roots of the older and the newer tree (RFC 9162 sections 2.1.3.2 and 2.1.4.2)."""
    older = newer = start
    for sibling in path:
        require(last > 0, "a path is too long")
        if index & 1 or index == last:
            older, newer = (hashlib.sha256(b"\x01" + sibling + right).digest() for right in (older, newer))
            while index and not index & 1:
                index, last = index >> 1, last >> 1
        else:
            newer = hashlib.sha256(b"\x01" + newer + sibling).digest()
        index, last = index >> 1, last >> 1
    require(last == 0, "a path is too short")
    return older, newer


def unhex(text: str, size: int = 32) -> bytes:
    require(bytes.fromhex(text).hex() == text and len(text) == 2 * size, "a hash or signature is malformed")
    return bytes.fromhex(text)


def unbase64(text: str, size: int) -> bytes:
    data = base64.b64decode(text)
    require(base64.b64encode(data).decode() == text and len(data) == size, "a checkpoint is malformed")
    return data


def read_note(note: str, validator: str) -> tuple[int, bytes]:
    """(size, root) of a signed checkpoint."""
    text, _, signature = note.partition("\n\n")
    origin, size, root = text.split("\n")
    require(origin == ORIGIN + validator and str(abs(int(size))) == size, "a checkpoint is of another log")
    require(signature.startswith(f"— {origin} ") and signature[-1] == "\n", "a checkpoint is not signed")
    key_id = hashlib.sha256(f"{origin}\n".encode() + b"\xffsr25519" + validator.encode()).digest()[:4]
    signed = unbase64(signature[len(origin) + 3 : -1], 68)
    require(signed[:4] == key_id, "a checkpoint is signed with another key")
    require_signed(validator, text.encode() + b"\n", signed[4:], "a checkpoint")
    return int(size), unbase64(root, 32)


def check(raw: bytes, content: bytes | None, notes: list[str]) -> str:
    """What to say about a proof that holds; an exception when it does not."""
    proof = json.loads(raw)
    canonical = json.dumps(proof, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    require(canonical.encode() == raw and set(proof) == FIELDS and proof["format"] == FORMAT, "not a proof file")
    validator, seq, older, name = proof["validator"], proof["seq"], proof["older"], proof["validator"].encode()
    require(type(seq) is int and 0 < seq < 2**53, "the record has no number")
    message = RECORD_DOMAIN + len(name).to_bytes(2, "big") + name + seq.to_bytes(8, "big")
    message += unhex(proof["prev"]) + unhex(proof["content_sha256"])
    require_signed(validator, message, unhex(proof["signature"], 64), "the record")
    size, root = known = read_note(proof["checkpoint"], validator)
    require(seq <= size, "the record is newer than the checkpoint")
    path, leaf = [unhex(text) for text in proof["inclusion"]], hashlib.sha256(b"\x00" + message).digest()
    require(fold(seq - 1, size - 1, path, leaf)[1] == root, "the record is not in the log")
    said, shown = f"record {seq} of {validator} stands in its log of {size} records\n", [known]
    if older is not None:
        first, first_root = point = read_note(older["checkpoint"], validator)
        require(set(older) == {"checkpoint", "consistency"} and 0 < first < size, "the older checkpoint is not older")
        path, unit = [unhex(text) for text in older["consistency"]], first & -first
        start, *path = [first_root, *path] if first == unit else path
        is_kept = fold(first // unit - 1, (size - 1) // unit, path, start) == (first_root, root)
        require(is_kept, "the log was changed since the older checkpoint")
        said, shown = f"{said}none of its first {first} records was changed since\n", [known, point]
    require(content is None or hashlib.sha256(content).hexdigest() == proof["content_sha256"], "the content is another")
    require(all(read_note(note, validator) in shown for note in notes), "the proof is about another checkpoint")
    return f"{said}content compared: {'no' if content is None else 'yes'}, checkpoints of yours: {len(notes)}\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Check a proof about one record of a validator's log.")
    parser.add_argument("proof", type=pathlib.Path)
    parser.add_argument("--content", type=pathlib.Path, help="the record's content, byte for byte")
    parser.add_argument("--note", type=pathlib.Path, action="append", default=[], help="a checkpoint you hold")
    given = parser.parse_args()
    try:
        held = [path.read_bytes().decode() for path in given.note]
        sys.stdout.write(check(given.proof.read_bytes(), given.content and given.content.read_bytes(), held))
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        sys.exit(f"does not hold: {error}")
