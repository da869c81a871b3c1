"""Mixing a corpus with rejection-sampled rollouts, by recipe: which rows, how often, in which order.

Pure and seeded; the draw of a row depends on the seed and the row's key, not on the order of the rows. Shares
are met by leaving out rows of the larger part, never by repeating those of the smaller one; repeating is what
`voucher_times` is for, which applies first (paper, B.3: 50/50, with 70/30 as ablation; B.4: voucher x3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from problems.model import Bucket

WHOLE_E4 = 10_000


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    """A mixing recipe. `corpus_share_e4` of the rows come from the corpus, the rest from the rollouts."""

    corpus_share_e4: int = 5_000  # 7_000 for 70/30
    voucher_times: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.corpus_share_e4 <= WHOLE_E4 or self.voucher_times < 1:
            raise ValueError("a share lies between 0 and 10,000, and every row stands at least once")


class MixRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row to be mixed, by a key of its own (trace id and place, or a rollout's id)."""

    key: str
    bucket: Bucket | None = None


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the mix: index into the corpus or the rollouts, and which of its copies it is, from 0."""

    is_corpus: bool
    index: int
    copy: int


def mix(corpus: Sequence[MixRow], rollouts: Sequence[MixRow], recipe: Mix) -> tuple[Draw, ...]:
    """The rows to train on, shuffled by the seed.

    The largest mix of the recipe's shares, to within one row. Raises ValueError when a part that is to have a share
    has no rows, or when two rows of a part have one key.
    """
    parts = {True: _copies(corpus, True, recipe), False: _copies(rollouts, False, recipe)}
    share = {True: recipe.corpus_share_e4, False: WHOLE_E4 - recipe.corpus_share_e4}
    asked = [part for part in parts if share[part]]
    if any(not parts[part] for part in asked):
        raise ValueError("a part that the recipe asks for has no rows")
    total = min(len(parts[part]) * WHOLE_E4 // share[part] for part in asked)
    from_corpus = total * share[True] // WHOLE_E4
    taken = [*parts[True][:from_corpus], *parts[False][: total - from_corpus]]
    return tuple(draw for _, draw in sorted(taken, key=lambda one: _lot(recipe.seed, "order", one[0])))


def _copies(rows: Sequence[MixRow], is_corpus: bool, recipe: Mix) -> list[tuple[str, Draw]]:
    """Every copy of every row with its name, in the order in which they are drawn."""
    if len({row.key for row in rows}) != len(rows):
        raise ValueError("two rows of one part have the same key")
    part = "corpus" if is_corpus else "rollouts"
    copies = [
        (f"{part} {row.key} {copy}", Draw(is_corpus=is_corpus, index=index, copy=copy))
        for index, row in enumerate(rows)
        for copy in range(recipe.voucher_times if row.bucket == "voucher" else 1)
    ]
    return sorted(copies, key=lambda one: _lot(recipe.seed, "draw", one[0]))


def _lot(seed: int, purpose: str, name: str) -> bytes:
    return hashlib.sha256(f"{seed} {purpose} {name}".encode()).digest()
