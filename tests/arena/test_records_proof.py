"""Proof files: what they prove, and that any change of proof, content or checkpoint is refused, here and by the script
that strangers are given, which is run as they would run it: alone."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.chain.keys import keypair_signer, verify
from arena.records import verify_proof
from arena.records.log import (
    LeafRange,
    LogStart,
    LogWalk,
    MerkleFrontier,
    consistency_ranges,
    inclusion_ranges,
    leaf_hash,
    message_of,
)
from arena.records.model import Envelope, SignedRecord
from arena.records.proof import TILE, Proof, TiledLogs, encode_proof, prove
from arena.records.sequencer import Sequencer
from arena.records.verify_proof import fold
from foundation.errors import ArenaError
from tests.arena.log_stand import HOST, Clock, MemoryLog, attempt, signed_note

ALICE, BOB = keypair_signer("//Alice"), keypair_signer("//Bob")
SCRIPT = Path(verify_proof.__file__)
SIZE = 11
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@cache
def log() -> MemoryLog:
    made = MemoryLog(ALICE.hotkey)
    asyncio.run(Sequencer(made, ALICE, Clock(), HOST).append([attempt(number) for number in range(SIZE)]))
    return made


@cache
def note(size: int) -> str:
    return signed_note(ALICE, log().log[:size])


@cache
def proven(seq: int, size: int = SIZE, older: int = 0) -> tuple[Proof, SignedRecord]:
    return asyncio.run(prove(log(), ALICE.hotkey, seq, note(size), verify, older_note=note(older) if older else ""))


def run_script(folder: Path, proof: bytes, *, content: bytes | None = None, notes: tuple[bytes, ...] = ()):
    """The script as a stranger runs it."""
    (folder / "proof.json").write_bytes(proof)
    command = [sys.executable, "-I", str(SCRIPT), str(folder / "proof.json")]
    if content is not None:
        (folder / "content").write_bytes(content)
        command += ["--content", str(folder / "content")]
    for number, text in enumerate(notes):
        (folder / f"note-{number}").write_bytes(text)
        command += ["--note", str(folder / f"note-{number}")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def is_refused(raw: bytes, content: bytes | None = None, notes: tuple[str, ...] = ()) -> bool:
    try:
        verify_proof.check(raw, content, list(notes))
    except MALFORMED:
        return True
    return False


def test_the_script_alone_checks_a_proof(tmp_path: Path) -> None:
    proof, record = proven(4, older=6)
    held = tuple(note(size).encode() for size in (SIZE, 6))
    done = run_script(tmp_path, encode_proof(proof), content=record.content, notes=held)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"record 4 of {ALICE.hotkey} stands in its log of {SIZE} records",
        "none of its first 6 records was changed since",
        "content compared: yes, checkpoints of yours: 2",
    ]
    done = run_script(tmp_path, encode_proof(proof) + b"\n")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "does not hold: not a proof file\n")


def test_other_content_or_a_kept_note_it_does_not_lead_to_is_refused() -> None:
    proof, record = proven(4, older=6)
    raw = encode_proof(proof)
    assert is_refused(raw, record.content + b" ", (note(SIZE),)) and is_refused(raw, record.content, (note(5),))


@given(st.data())
def test_any_changed_byte_of_a_proof_is_refused(data: st.DataObject) -> None:
    raw = bytearray(encode_proof(proven(4, older=6)[0]))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    assert is_refused(bytes(raw))


def test_a_log_that_was_rewritten_gives_no_proof_under_the_checkpoint_signed_before() -> None:
    other = MemoryLog(ALICE.hotkey)
    asyncio.run(Sequencer(other, ALICE, Clock(1), HOST).append([attempt(number) for number in range(SIZE)]))
    with pytest.raises(ArenaError, match="V2050"):
        asyncio.run(prove(other, ALICE.hotkey, 4, note(SIZE), verify))
    other.log = log().log[:5]
    for seq in (4, 6):
        with pytest.raises(ArenaError, match="V2053"):
            asyncio.run(prove(other, ALICE.hotkey, seq, note(SIZE), verify))


@pytest.mark.parametrize(
    ("seq", "size", "older"), [(SIZE, SIZE - 1, 0), (0, SIZE, 0), (4, SIZE, SIZE), (4, 5, 6), (SIZE + 1, SIZE, 0)]
)
def test_what_a_checkpoint_does_not_cover_is_not_proven(seq: int, size: int, older: int) -> None:
    with pytest.raises(ArenaError, match="V2053"):
        proven(seq, size, older)
    with pytest.raises(ArenaError, match=r"V2053.*of another log"):
        asyncio.run(prove(log(), BOB.hotkey, 4, note(SIZE), verify))


# -- roots and proofs of the Merkle log: the RFC's own definition, the published vectors, and tiles of a growing log


# The test vectors of Certificate Transparency's reference implementation: eight leaves, roots of each size.
CT_LEAVES = [
    bytes.fromhex(leaf)
    for leaf in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
CT_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAF_COUNT = 40


def roots(leaves: list[bytes], ranges: list[LeafRange]) -> list[bytes]:
    found = []
    for first, end in ranges:
        tree = MerkleFrontier()
        for leaf in leaves[first:end]:
            tree.append(leaf)
        found.append(tree.root())
    return found


def test_roots_are_the_published_certificate_transparency_vectors() -> None:
    assert [root.hex() for root in roots(CT_LEAVES, [(0, size) for size in range(1, 9)])] == CT_ROOTS


def test_the_script_folds_every_proof_to_the_root() -> None:
    leaves = [str(number).encode() for number in range(LEAF_COUNT)]
    root_of = [MerkleFrontier().root(), *roots(leaves, [(0, size) for size in range(1, LEAF_COUNT + 1)])]
    for second in range(1, LEAF_COUNT):
        for index in range(second):
            proof = roots(leaves, inclusion_ranges(index, second))
            assert fold(index, second - 1, proof, leaf_hash(leaves[index]))[1] == root_of[second]
        for first in range(1, second):
            proof, unit = roots(leaves, consistency_ranges(first, second)), first & -first
            start, *rest = [root_of[first], *proof] if first == unit else proof
            assert fold(first // unit - 1, (second - 1) // unit, rest, start) == (root_of[first], root_of[second])
    for ranges, wrong in ((inclusion_ranges, [(0, 0), (5, 1), (-1, 4)]), (consistency_ranges, [(0, 3), (4, 3)])):
        for numbers in wrong:
            with pytest.raises(ValueError, match="leaves"):
                ranges(*numbers)


class Leaves:
    """A log of numbered leaves that counts what is read of it."""

    def __init__(self, size: int) -> None:
        self.size, self.read = size, 0

    async def leaves(self, validator, *, after_seq=0, to_seq=None):
        for seq in range(after_seq + 1, min(self.size, to_seq if to_seq is not None else self.size) + 1):
            self.read += 1
            sha256 = hashlib.sha256(b"%d" % seq).hexdigest()
            yield Envelope(validator="v", seq=seq, prev=f"{seq:064x}", content_sha256=sha256, signature="")


async def test_tiles_give_the_proofs_of_the_whole_tree_and_read_little() -> None:
    size = 5 * TILE + 77
    store = Leaves(size)
    tiles = TiledLogs(store)
    await tiles.inclusion("v", 1, size)
    leaves = [message_of(leaf) async for leaf in store.leaves("v")]
    for seq in (1, TILE, TILE + 1, 3 * TILE + 5, 5 * TILE + 1, size):
        for upto in {size, 4 * TILE, seq}:
            if seq > upto:
                continue
            store.read = 0
            ranges = inclusion_ranges(seq - 1, upto), consistency_ranges(seq, upto)
            found = await tiles.inclusion("v", seq, upto), await tiles.consistency("v", seq, upto)
            assert found == tuple(tuple(map(bytes.hex, roots(leaves, each))) for each in ranges)
            assert store.read <= 4 * TILE
    with pytest.raises(ArenaError, match="V2053"):
        await TiledLogs(Leaves(300)).inclusion("v", 1, 1_000)


@pytest.mark.parametrize(("size", "peaks"), [(1, []), (0, [bytes(32)]), (3, [bytes(32)]), (1, [b"short"]), (-1, [])])
def test_peaks_that_do_not_fit_the_size_are_refused(size: int, peaks: list[bytes]) -> None:
    with pytest.raises(ArenaError, match="V2050"):
        MerkleFrontier(size, peaks)


def test_a_log_cannot_start_at_what_is_no_hash_nor_before_its_first_record() -> None:
    for fields in ({"after_seq": 1, "head": "00", "peaks": ("00" * 32,)}, {"head": "00" * 32}):
        with pytest.raises(ArenaError, match="V2050"):
            LogWalk(LogStart(validator="v", **fields))
