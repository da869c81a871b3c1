"""Whose code it is: a file against the agents committed before it, as a pure function of sketches and commitments.

The owner of code is whoever committed it first on chain. What the published agents and the revealed winners contain
belongs to nobody, nor does what three owners have in common; an owner's own versions are no matter. Equal code is
rejected, a near copy is held; neither names the other agent before both are public. Nothing is claimed by less than a
stated remnant of phrases, so nobody can own an idiom.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np

from arena.gate.report import Finding, finding
from arena.gate.sketch import Phrases, Sketch, make_sketch
from arena.policy import GateRules

COMMON_OWNERS = 3
_SAMPLED = np.uint64(8)  # one phrase in so many is compared first
_NOTHING: Phrases = np.zeros(0, dtype=np.uint64)


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """Who committed an agent version, and its place among all commitments on chain.

    `commitment_order` tells commitments of one block apart (0 where the chain gives no order); equal places are told
    apart by `agent_version_id`, so every validator sees the same order.
    """

    agent_version_id: str
    miner_hotkey: str
    commitment_block: int
    commitment_order: int = 0
    miner_coldkey: str = ""

    @property
    def place(self) -> tuple[int, int, str]:
        """Sorts commitments: first come, first owner."""
        return (self.commitment_block, self.commitment_order, self.agent_version_id)

    @property
    def owner(self) -> str:
        """Who owns the code: the coldkey where it is known."""
        return self.miner_coldkey or self.miner_hotkey


class Neighbour(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Another agent version. Give every one that was not rejected, in any order; later ones and own ones are left out
    here. `is_public`: everybody may read the source now. `is_winner`: a public winner, whose code all may build on.
    """

    author: Author
    sketch: Sketch
    is_public: bool = False
    is_winner: bool = False


def neighbour_of(
    author: Author, source: str, *, is_public: bool = False, is_winner: bool = False
) -> Neighbour:
    """A neighbour from its source. Raises ValueError when the source does not parse."""
    return Neighbour(author=author, sketch=make_sketch(source), is_public=is_public, is_winner=is_winner)
