"""Check a proof about one record of a validator's log. One file, standard library only, trusting nobody.

    python verify_proof.py PROOF [--content FILE] [--note FILE ...]

It shows that the validator signed the record, that FILE is what the record holds, and that the record stands in the log
whose state the validator signed in a checkpoint. --note: a checkpoint you hold from elsewhere, which the proof must be
about; without one you don't know that others are shown the same log. Exit code 0: it holds. 1: it does not. 2: usage.
Sources: RFC 9162 section 2.1 (tree), C2SP signed-note and tlog-checkpoint, schnorrkel (sr25519), Merlin and STROBE
(its transcripts), FIPS 202 (Keccak), RFC 9496 (ristretto255). Nothing here is secret, so time does not matter.
"""

# ruff: noqa: D103

import argparse
import base64
import hashlib
import json
import pathlib
import sys

FORMAT, RECORD_DOMAIN, ORIGIN = "agent-arena/proof/1", b"agent-arena/record/1", "agent-arena/log/1/"
FIELDS = {"format", "validator", "seq", "prev", "content_sha256", "signature", "checkpoint", "inclusion", "older"}
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493  # of the field, of the group
ROOT, D = pow(2, (P - 1) // 4, P), -121665 * pow(121666, P - 2, P) % P  # square root of -1, the curve's d
BASE = bytes.fromhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76")
Point = tuple[int, int, int, int]


def require(is_true: object, why: str) -> None:
    if not is_true:
        raise ValueError(why)


def keccak(state: bytearray) -> bytearray:
    """Keccak-f[1600] of 200 bytes."""

    def rotate(lane: int, bits: int) -> int:
        return (lane << bits % 64 | lane >> (64 - bits % 64)) & (2**64 - 1)

    a, register = [int.from_bytes(state[i : i + 8], "little") for i in range(0, 200, 8)], 1
    for _ in range(24):
        c = [a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20] for x in range(5)]
        a = [a[i] ^ c[(i + 4) % 5] ^ rotate(c[(i + 1) % 5], 1) for i in range(25)]
        x, y, moved = 1, 0, a[1]
        for t in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            moved, a[x + 5 * y] = a[x + 5 * y], rotate(moved, (t + 1) * (t + 2) // 2)
        a = [a[i] ^ (~a[i - i % 5 + (i + 1) % 5] & a[i - i % 5 + (i + 2) % 5]) for i in range(25)]
        for j in range(7):
            register = (register << 1 ^ (register >> 7) * 0x171) % 256
            a[0] ^= (register >> 1 & 1) << ((1 << j) - 1)
    return bytearray(b"".join(lane.to_bytes(8, "little") for lane in a))


def permute(state: bytearray, at: int, begin: int) -> bytearray:
    """STROBE's end of a block."""
    for place, byte in ((at, begin), (at + 1, 4), (167, 128)):
        state[place] ^= byte
    return keccak(state)


def challenge(*parts: tuple[bytes, bytes]) -> int:
    """The challenge of a Merlin transcript (over STROBE-128) of these labels and messages."""
    steps = [(18, b"Merlin v1.0")]
    for label, message in parts:
        steps += [(18, label + len(message).to_bytes(4, "little")), (2, message)]
    steps += [(18, b"sign:c" + (64).to_bytes(4, "little")), (7, b"")]
    state, at, begin = keccak(bytearray(b"\x01\xa8\x01\x00\x01\x60STROBEv1.0.2" + bytes(182))), 0, 0
    for flags, data in steps:
        block, begin = bytes([begin, flags]) + data, at + 1
        for byte in block:
            state[at] ^= byte
            at += 1
            if at == 166:
                state, at, begin = permute(state, at, begin), 0, 0
    return int.from_bytes((permute(state, at, begin) if at else state)[:64], "little") % L


def decode_point(data: bytes) -> Point:
    """The point of 32 bytes, in extended Edwards coordinates (RFC 9496 section 4.3.1)."""
    s = int.from_bytes(data, "little")
    u1, u2 = (1 - s * s) % P, (1 + s * s) % P
    v = (-D * u1 * u1 - u2 * u2) % P
    w = v * u2 * u2 % P
    root = pow(w, 3, P) * pow(w, 7 * (P - 5) // 8, P) % P
    root = root * ROOT % P if w * root * root % P == P - 1 else root
    x, y = 2 * s * root * u2 % P, u1 * root * root * u2 * v % P
    x = P - x if x % 2 else x
    require(s < P and s % 2 == 0 and w * root * root % P == 1 and y and x * y % P % 2 == 0, "no point of the curve")
    return x, y, 1, x * y % P


def add(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]), (p[1] + p[0]) * (q[1] + q[0])
    c, d = 2 * D * p[3] * q[3], 2 * p[2] * q[2]
    return (b - a) * (d - c) % P, (d + c) * (b + a) % P, (d - c) * (d + c) % P, (b - a) * (b + a) % P


def multiply(scalar: int, point: Point) -> Point:
    total = (0, 1, 1, 0)
    for bit in f"{scalar:b}":
        total = add(add(total, total), point if bit == "1" else (0, 1, 1, 0))
    return total


def require_signed(address: str, message: bytes, signature: bytes, what: str) -> None:
    """An sr25519 signature in Substrate's context, by the key of an ss58 address: s B = R + k A."""
    number = sum(BASE58.index(letter) * 58**place for place, letter in enumerate(reversed(address[:64])))
    key, checksum = number.to_bytes(35, "big")[1:33], number.to_bytes(35, "big")[33:]
    require(hashlib.blake2b(b"SS58PRE*" + key).digest()[:2] == checksum, "the validator is no address")
    s = int.from_bytes(signature[32:], "little") ^ 1 << 255  # schnorrkel marks its signatures with this bit
    require(len(signature) == 64 and s < L, f"{what} has a malformed signature")
    parts = ((b"", b"substrate"), (b"sign-bytes", message), (b"proto-name", b"Schnorr-sig"), (b"sign:pk", key))
    k = challenge((b"dom-sep", b"SigningContext"), *parts, (b"sign:R", signature[:32]))
    x1, y1, _, _ = multiply(s, decode_point(BASE))
    x2, y2, _, _ = add(decode_point(signature[:32]), multiply(k, decode_point(key)))
    require((x1 * y2 - y1 * x2) % P == 0 or (y1 * y2 - x1 * x2) % P == 0, f"{what} is not signed by {address}")


def fold(index: int, last: int, path: list[bytes], leaf: bytes) -> bytes:
    """From a leaf to the root (RFC 9162 section 2.1.3.2)."""
    root = leaf
    for sibling in path:
        require(last > 0, "a path is too long")
        if index & 1 or index == last:
            root = hashlib.sha256(b"\x01" + sibling + root).digest()
            while index and not index & 1:
                index, last = index >> 1, last >> 1
        else:
            root = hashlib.sha256(b"\x01" + root + sibling).digest()
        index, last = index >> 1, last >> 1
    require(last == 0, "a path is too short")
    return root


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
    require(canonical.encode() == raw and set(proof) == FIELDS and proof["format"] == FORMAT, "this is no proof file")
    require(proof["older"] is None, "it names an older checkpoint, which this program does not check")
    validator, seq, name = proof["validator"], proof["seq"], proof["validator"].encode()
    require(type(seq) is int and 0 < seq < 2**53, "the record has no number")
    message = RECORD_DOMAIN + len(name).to_bytes(2, "big") + name + seq.to_bytes(8, "big")
    message += unhex(proof["prev"]) + unhex(proof["content_sha256"])
    require_signed(validator, message, unhex(proof["signature"], 64), "the record")
    size, root = known = read_note(proof["checkpoint"], validator)
    require(seq <= size, "the record is newer than the checkpoint")
    path, leaf = [unhex(text) for text in proof["inclusion"]], hashlib.sha256(b"\x00" + message).digest()
    require(fold(seq - 1, size - 1, path, leaf) == root, "the record is not in the log")
    require(content is None or hashlib.sha256(content).hexdigest() == proof["content_sha256"], "the content is another")
    require(all(read_note(note, validator) == known for note in notes), "the proof is about another checkpoint")
    compared = f"content compared: {'no' if content is None else 'yes'}, checkpoints of yours: {len(notes)}"
    return f"record {seq} of {validator} stands in its log of {size} records\n{compared}\n"


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
