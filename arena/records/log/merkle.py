"""The Merkle tree of an append-only log, after RFC 9162 section 2.1: roots, inclusion and consistency proofs.

Leaf hash sha256(0x00 || entry), node hash sha256(0x01 || left || right), empty tree sha256(""). Everything
streams. A growing tree is kept as the roots of its complete subtrees, one hash per bit of the size, and a proof is
taken in one pass over the entries in the same little memory, because the subtrees it names do not overlap. The
verifiers take untrusted numbers: they answer False, never raise and always end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from foundation.errors import ArenaError

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
    largest first, one per set bit of `size`. Raises ArenaError V2051 when the two do not fit each other.
    """

    def __init__(self, size: int = 0, peaks: Sequence[bytes] = ()) -> None:
        if size < 0 or size.bit_count() != len(peaks) or any(len(peak) != HASH_BYTES for peak in peaks):
            raise ArenaError("V2051", f"a tree of {size} leaves does not have these {len(peaks)} peaks")
        self.size = size
        self._peaks = list(peaks)

    @property
    def peaks(self) -> tuple[bytes, ...]:
        """Roots of the complete subtrees, largest first."""
        return tuple(self._peaks)

    def append(self, entry: bytes) -> None:
        """Add one entry (not its hash)."""
        peak, size = leaf_hash(entry), self.size
        while size & 1:  # a pair is complete
            peak = node_hash(self._peaks.pop(), peak)
            size >>= 1
        self._peaks.append(peak)
        self.size += 1

    def root(self) -> bytes:
        """Root over everything appended so far."""
        if not self._peaks:
            return EMPTY_ROOT
        *larger, root = self._peaks
        for peak in reversed(larger):
            root = node_hash(peak, root)
        return root


def inclusion_ranges(index: int, size: int) -> list[LeafRange]:
    """The subtrees whose roots prove leaf `index` in a tree of `size`, in proof order. RFC 9162 section 2.1.3.1.

    Raises ValueError unless 0 <= index < size.
    """
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    first, end, found = 0, size, []
    while end - first > 1:
        middle = first + _split(end - first)
        if index < middle:
            found.append((middle, end))
            end = middle
        else:
            found.append((first, middle))
            first = middle
    return found[::-1]


def consistency_ranges(first: int, second: int) -> list[LeafRange]:
    """The subtrees whose roots prove that a tree of `second` leaves begins with one of `first`. RFC 9162 section
    2.1.4.1. Raises ValueError unless 0 < first <= second."""
    if not 0 < first <= second:
        raise ValueError(f"there is no proof from {first} to {second} leaves")
    start, end, found = 0, second, []
    while first != end:
        middle = start + _split(end - start)
        if first <= middle:
            found.append((middle, end))
            end = middle
        else:
            found.append((start, middle))
            start = middle
    if start:  # the old tree's last subtree; a whole old tree is known to the verifier by its root
        found.append((start, end))
    return found[::-1]


class RangeHashes:
    """The roots of some disjoint leaf ranges, taken from all entries in one pass."""

    def __init__(self, ranges: Sequence[LeafRange]) -> None:
        self._trees = [MerkleFrontier() for _ in ranges]
        self._waiting = sorted(
            ((first, end, tree) for (first, end), tree in zip(ranges, self._trees, strict=True)),
            key=lambda row: row[0],
            reverse=True,
        )
        self._next = 0

    def append(self, entry: bytes) -> None:
        """Take the next entry of the log, from leaf 0 on."""
        if self._waiting and self._waiting[-1][0] <= self._next:
            _, end, tree = self._waiting[-1]
            tree.append(entry)
            if self._next + 1 == end:
                self._waiting.pop()
        self._next += 1

    def hashes(self) -> list[bytes]:
        """The roots in the order of the ranges. Raises ArenaError V2051 while entries are missing."""
        if self._waiting:
            raise ArenaError("V2051", f"the log ends after {self._next} records")
        return [tree.root() for tree in self._trees]


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """True when `proof` shows the leaf hash at `index` in the tree of `size` and `root`. RFC 9162 section 2.1.3.2."""
    if not 0 <= index < size:
        return False
    node, last, found = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if node & 1 or node == last:
            found = node_hash(sibling, found)
            node, last = _climb_to_right(node, last)
        else:
            found = node_hash(found, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and found == root


def verify_consistency(first: int, second: int, proof: Sequence[bytes], first_root: bytes, second_root: bytes) -> bool:
    """True when `proof` shows that the tree of `second` leaves begins with the one of `first`. RFC 9162 section
    2.1.4.2; a tree of no leaves is the beginning of every tree, and no proof is needed or accepted for it."""
    if not 0 < first <= second:
        return False
    if first == second:
        return not proof and first_root == second_root
    path = [first_root, *proof] if first & (first - 1) == 0 else list(proof)
    if not path:
        return False
    node, last = first - 1, second - 1
    while node & 1:  # up to the root of the complete subtree that the old tree's last leaf closes
        node, last = node >> 1, last >> 1
    older = newer = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            older, newer = node_hash(sibling, older), node_hash(sibling, newer)
            node, last = _climb_to_right(node, last)
        else:
            newer = node_hash(newer, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and older == first_root and newer == second_root


def _split(size: int) -> int:
    """The largest power of two below `size`, for size > 1: how many leaves the left subtree has."""
    return 1 << ((size - 1).bit_length() - 1)


def _climb_to_right(node: int, last: int) -> tuple[int, int]:
    """Past the levels where the node is a left child without a sibling."""
    while node and not node & 1:
        node, last = node >> 1, last >> 1
    return node, last
