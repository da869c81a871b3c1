"""Roots and proofs of the Merkle log: the RFC's own definition, the published vectors, and hostile numbers."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.records.merkle import (
    EMPTY_ROOT,
    MerkleFrontier,
    RangeHashes,
    consistency_ranges,
    inclusion_ranges,
    leaf_hash,
    node_hash,
    verify_consistency,
    verify_inclusion,
)
from foundation.errors import ArenaError

# The test vectors of Certificate Transparency's reference implementation: eight leaves, roots of each size, proofs.
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
_A = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
_B = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
_C = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"
_D = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
_E = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"
_F = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"
CT_INCLUSION = {  # (index, size) -> proof
    (0, 1): [],
    (0, 8): [_A, _B, _C],
    (5, 8): [_D, _E, CT_ROOTS[3]],
    (2, 3): [CT_ROOTS[1]],
    (1, 5): [CT_ROOTS[0], _B, _D],
}
CT_CONSISTENCY = {(1, 1): [], (1, 8): [_A, _B, _C], (6, 8): [_F, _E, CT_ROOTS[3]], (2, 5): [_B, _D]}
SIZE = 40
NUMBERS = st.integers(-(2**70), 2**70)


@cache
def definition(first: int, end: int) -> bytes:
    """RFC 9162 section 2.1.1, recursively, over the leaves "0", "1", ..."""
    if first == end:
        return EMPTY_ROOT
    if end - first == 1:
        return leaf_hash(str(first).encode())
    middle = first + (1 << ((end - first - 1).bit_length() - 1))
    return node_hash(definition(first, middle), definition(middle, end))


def path(index: int, first: int, end: int) -> list[bytes]:
    """RFC 9162 section 2.1.3.1, recursively."""
    if end - first == 1:
        return []
    middle = first + (1 << ((end - first - 1).bit_length() - 1))
    if index < middle:
        return [*path(index, first, middle), definition(middle, end)]
    return [*path(index, middle, end), definition(first, middle)]


def subproof(size: int, first: int, end: int, is_whole: bool) -> list[bytes]:
    """RFC 9162 section 2.1.4.1, recursively: from the first `size` leaves to all of them."""
    if size == end - first:
        return [] if is_whole else [definition(first, end)]
    left = 1 << ((end - first - 1).bit_length() - 1)
    if size <= left:
        return [*subproof(size, first, first + left, is_whole), definition(first + left, end)]
    return [*subproof(size - left, first + left, end, False), definition(first, first + left)]


def proven(ranges: list[tuple[int, int]], size: int, leaves: list[bytes] | None = None) -> list[bytes]:
    found = RangeHashes(ranges)
    for entry in leaves or [str(number).encode() for number in range(size)]:
        found.append(entry)
    return found.hashes()


def tree_of(size: int) -> MerkleFrontier:
    tree = MerkleFrontier()
    for number in range(size):
        tree.append(str(number).encode())
    return tree


def test_the_root_follows_the_recursive_definition_at_every_size() -> None:
    tree = MerkleFrontier()
    for size in range(130):
        assert tree.root() == definition(0, size)
        tree.append(str(size).encode())


def test_roots_and_proofs_are_the_published_certificate_transparency_vectors() -> None:
    tree = MerkleFrontier()
    for leaf, root in zip(CT_LEAVES, CT_ROOTS, strict=True):
        tree.append(leaf)
        assert tree.root().hex() == root
    for (index, size), proof in CT_INCLUSION.items():
        found = proven(inclusion_ranges(index, size), size, CT_LEAVES[:size])
        assert [hash_.hex() for hash_ in found] == proof
        assert verify_inclusion(leaf_hash(CT_LEAVES[index]), index, size, found, bytes.fromhex(CT_ROOTS[size - 1]))
    for (first, second), proof in CT_CONSISTENCY.items():
        found = proven(consistency_ranges(first, second), second, CT_LEAVES[:second])
        roots = [bytes.fromhex(CT_ROOTS[size - 1]) for size in (first, second)]
        assert [hash_.hex() for hash_ in found] == proof
        assert verify_consistency(first, second, found, *roots)


@given(st.integers(0, 300), st.integers(0, 300))
def test_a_tree_continued_from_its_peaks_is_the_same_tree(before: int, after: int) -> None:
    kept = tree_of(before)
    tree = MerkleFrontier(kept.size, kept.peaks)
    for number in range(before, before + after):
        tree.append(str(number).encode())
    assert (tree.size, tree.root()) == (before + after, definition(0, before + after))


@pytest.mark.parametrize(("size", "peaks"), [(1, []), (0, [bytes(32)]), (3, [bytes(32)]), (1, [b"short"]), (-1, [])])
def test_peaks_that_do_not_fit_the_size_are_refused(size: int, peaks: list[bytes]) -> None:
    with pytest.raises(ArenaError, match="V2051"):
        MerkleFrontier(size, peaks)


def test_every_inclusion_proof_follows_the_definition_and_proves_its_leaf_only() -> None:
    for size in range(1, SIZE):
        root = definition(0, size)
        for index in range(size):
            proof, leaf = proven(inclusion_ranges(index, size), size), definition(index, index + 1)
            assert proof == path(index, 0, size)
            assert verify_inclusion(leaf, index, size, proof, root)
            for other in (index - 1, index + 1, size, size + 7, -1):
                assert not verify_inclusion(leaf, other, size, proof, root)
            assert not verify_inclusion(leaf_hash(b"other"), index, size, proof, root)
            assert not verify_inclusion(leaf, index, size, [*proof, leaf], root)
            assert not proof or not verify_inclusion(leaf, index, size, proof[:-1], root)


def test_every_consistency_proof_follows_the_definition_and_proves_its_roots_only() -> None:
    wrong = leaf_hash(b"other")
    for second in range(1, SIZE):
        newer = definition(0, second)
        for first in range(1, second + 1):
            proof, older = proven(consistency_ranges(first, second), second), definition(0, first)
            assert proof == subproof(first, 0, second, True)
            assert verify_consistency(first, second, proof, older, newer)
            assert not verify_consistency(first, second, proof, wrong, newer)
            assert not verify_consistency(first, second, proof, older, wrong)
            assert not verify_consistency(first, second, [*proof, wrong], older, newer)
            assert not proof or not verify_consistency(first, second, proof[:-1], older, newer)


@given(
    st.integers(-(2**70), 2**70),
    st.integers(-(2**70), 2**70),
    st.lists(st.binary(min_size=32, max_size=32), max_size=70),
)
def test_hostile_numbers_and_proofs_are_refused_and_always_end(first: int, second: int, proof: list[bytes]) -> None:
    root = leaf_hash(b"root")
    assert not verify_inclusion(leaf_hash(b"leaf"), first, second, proof, root)
    assert not verify_consistency(first, second, proof, leaf_hash(b"older"), root)


def test_sizes_that_no_proof_is_about_are_refused() -> None:
    root = leaf_hash(b"leaf")
    for first, second in ((0, 0), (0, 9), (-1, 9), (9, 4), (3, 9)):
        assert not verify_consistency(first, second, [], root, root)
    assert not verify_inclusion(root, 5, 1, [], root)
    for index, size in ((0, 0), (5, 1), (-1, 4)):
        with pytest.raises(ValueError, match="leaf"):
            inclusion_ranges(index, size)
    for first, second in ((0, 3), (4, 3)):
        with pytest.raises(ValueError, match="no proof"):
            consistency_ranges(first, second)


def test_a_proof_from_a_log_that_ends_too_early_is_refused() -> None:
    found = RangeHashes(inclusion_ranges(0, 4))
    found.append(b"0")
    with pytest.raises(ArenaError, match="V2051"):
        found.hashes()
