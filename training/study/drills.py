"""Drills: rows of random tokens that repeat themselves, from which a model that starts from nothing learns to quote.

Promise: pure and seeded, and without any text: no word, no request and no result follows another more often than chance
has it, so nothing of a policy or of the market can be learnt from them. What can be learnt is that a sequence which
was seen goes on as it did; a small model otherwise spends most of its budget on finding that out.
"""

from __future__ import annotations

import random

from training.model import TokenRow

PERIODS = (4, 24)  # tokens until a row repeats itself, fewest and most


def drill_rows(count: int, length: int, tokens: int, seed: int) -> list[TokenRow]:
    """`count` rows of `length` ids below `tokens`; what repeats is to be learnt, what is drawn is not."""
    dice = random.Random(f"drills {seed}")
    rows = []
    for number in range(count):
        period = dice.randint(*PERIODS)
        drawn = dice.choices(range(tokens), k=period)
        ids = (drawn * (length // period + 1))[:length]
        mask = tuple(int(place > period) for place in range(length))  # the first repeated token is still a surprise
        rows.append(TokenRow(trace_id=f"drill-{number}", token_ids=tuple(ids), mask=mask, prompt_length=period + 1))
    return rows
