"""Roots and proofs of the Merkle log: the RFC's own definition, the published vectors, and tiles of a growing log."""

from __future__ import annotations

import hashlib

import pytest

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
from arena.records.model import Envelope
from arena.records.proof import TILE, TiledLogs
from arena.records.verify_proof import fold
from foundation.errors import ArenaError

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
SIZE = 40


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
    leaves = [str(number).encode() for number in range(SIZE)]
    root_of = [MerkleFrontier().root(), *roots(leaves, [(0, size) for size in range(1, SIZE + 1)])]
    for second in range(1, SIZE):
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
            assert await tiles.inclusion("v", seq, upto) == tuple(roots(leaves, inclusion_ranges(seq - 1, upto)))
            assert await tiles.consistency("v", seq, upto) == tuple(roots(leaves, consistency_ranges(seq, upto)))
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
