"""The Merkle root of an append-only log, after RFC 9162 section 2.1.1.

Leaf hash sha256(0x00 || entry), node hash sha256(0x01 || left || right), empty tree sha256(""). Keeps the roots of the
complete subtrees only (one hash per bit of the size), so a log of any length streams through it.
"""

from __future__ import annotations

import hashlib

EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    """Hash of one leaf."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class MerkleFrontier:
    """A growing tree, reduced to what its root needs. Appending costs one or two hashes on average."""

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[bytes] = []  # roots of complete subtrees, largest first: one per set bit of size

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
