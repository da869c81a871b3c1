"""The Merkle tree of an append-only log, after RFC 9162 section 2.1: roots, inclusion and consistency proofs.

Leaf hash sha256(0x00 || entry), node hash sha256(0x01 || left || right), empty tree sha256(""). A growing tree is kept
as the roots of its complete subtrees, one hash per bit of the size.
`arena.records.proof` makes proofs, `arena.records.verify_proof` checks them.
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
    largest first, one per set bit of `size`. Raises ArenaError V2050 when the two do not fit each other.
    """

    def __init__(self, size: int = 0, peaks: Sequence[bytes] = ()) -> None:
        if size < 0 or size.bit_count() != len(peaks) or any(len(peak) != HASH_BYTES for peak in peaks):
            raise ArenaError("V2050", f"a tree of {size} leaves does not have these {len(peaks)} peaks")
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


def _split(size: int) -> int:
    """The largest power of two below `size`, for size > 1: how many leaves the left subtree has."""
    return 1 << ((size - 1).bit_length() - 1)
