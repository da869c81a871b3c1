"""Structure fingerprints: which agents share most of their syntax, whatever their names and strings are.

Shingles of twelve node types in pre-order, with identifiers and literal values erased, hashed with a stable function.
The published agents' shingles don't count. A copy gives a review, never a rejection; who was first is decided by the
commitment on chain. A rewrite by a language model changes the tree and is not found here (gate notes, section 6).
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from arena.gate.report import Finding, finding
from arena.gate.source import preorder

Shingles = npt.NDArray[np.uint64]

SHINGLE_NODES = 12
_BASE = 0xD6E8FEB86659FD93
_ERASED = (ast.Load, ast.Store, ast.Del)


class Neighbour(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An agent submitted earlier, by another hotkey."""

    agent_version_id: str
    shingles: Shingles


def fingerprint(source: str) -> Shingles:
    """The sorted, distinct shingles of a source. Raises ValueError when it does not parse."""
    try:
        return fingerprint_nodes(preorder(ast.parse(source))[0])
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not a parsable source: {error}") from error


def fingerprint_nodes(nodes: Iterable[ast.AST]) -> Shingles:
    """The sorted, distinct shingles of nodes in pre-order."""
    kinds = np.array([_kind_hash(_kind(node)) for node in nodes if not isinstance(node, _ERASED)], dtype=np.uint64)
    count = len(kinds) - SHINGLE_NODES + 1
    if count < 1:
        return np.zeros(0, dtype=np.uint64)
    hashes = np.zeros(count, dtype=np.uint64)
    base = np.uint64(_BASE)
    with np.errstate(over="ignore"):
        for offset in range(SHINGLE_NODES):
            hashes = hashes * base + kinds[offset : offset + count]
    return np.unique(hashes)


def containment_e4(shingles: Shingles, other: Shingles, baseline: Shingles) -> int:
    """Shared shingles over those of the smaller set, in ten-thousandths, without the baseline's. 0 for an empty set."""
    ours = np.setdiff1d(shingles, baseline, assume_unique=True)
    theirs = np.setdiff1d(other, baseline, assume_unique=True)
    smaller = min(len(ours), len(theirs))
    return 0 if smaller == 0 else len(np.intersect1d(ours, theirs, assume_unique=True)) * 10_000 // smaller


def similarity_findings(
    shingles: Shingles, neighbours: Sequence[Neighbour], baseline: Shingles, review_e4: int
) -> list[Finding]:
    """One finding, on the closest neighbour, when its containment reaches `review_e4`."""
    shares = [(containment_e4(shingles, other.shingles, baseline), other.agent_version_id) for other in neighbours]
    closest, agent_version_id = max(shares, default=(0, ""))
    if closest < review_e4 or closest == 0:
        return []
    return [finding("similarity", 0, f"{closest / 100:.0f} % contained in agent {agent_version_id}")]


def _kind(node: ast.AST) -> str:
    kind = type(node).__name__
    return f"{kind}:{type(node.value).__name__}" if isinstance(node, ast.Constant) else kind


@functools.cache
def _kind_hash(kind: str) -> int:
    return int.from_bytes(hashlib.blake2b(kind.encode(), digest_size=8).digest(), "big")
