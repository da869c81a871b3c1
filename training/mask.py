"""Is a mask exact? A mask is right when the tokens it marks are the assistant's text, and nothing else.

Promise: the check does not trust the renderer that made the mask: it reads tokens back as text and compares that with
the messages. Rows that fail are dropped and counted; too many stop the run (paper B.2, "mask validation").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from training.corpus.model import Message
from training.model import ChatCodec, TokenRow


def masked_runs(token_ids: Sequence[int], mask: Sequence[int]) -> list[tuple[int, ...]]:
    """The runs of tokens whose mask is 1, in order. Raises ValueError when the two differ in length."""
    if len(token_ids) != len(mask):
        raise ValueError(f"{len(token_ids)} tokens, {len(mask)} mask bits")
    runs: list[list[int]] = []
    was = 0
    for token, bit in zip(token_ids, mask, strict=True):
        if bit:
            if not was:
                runs.append([])
            runs[-1].append(token)
        was = bit
    return [tuple(run) for run in runs]


def mask_defect(row: TokenRow, messages: Iterable[Message], codec: ChatCodec) -> str | None:
    """What is wrong with a row's mask, or None. Each run must read back as its assistant turn."""
    turns = [message for message in messages if message.role == "assistant" and message.is_model]
    runs = masked_runs(row.token_ids, row.mask)
    if len(runs) != len(turns):
        return f"{len(runs)} masked runs for {len(turns)} assistant turns"
    for number, (run, turn) in enumerate(zip(runs, turns, strict=True)):
        defect = run_defect(run, codec)
        if defect:
            return f"turn {number}: {defect}"
        read = codec.parse(run).message
        # Earlier turns lose their reasoning where the template strips it; what is there must be the turn's own.
        if read.content.strip() != turn.content.strip() or read.reasoning.strip() not in ("", turn.reasoning.strip()):
            return f"turn {number} reads back as other text"
        if [call.name for call in read.calls] != [call.name for call in turn.calls]:
            return f"turn {number} reads back with other calls"
    return None


def run_defect(run: Sequence[int], codec: ChatCodec) -> str | None:
    """What no sampled turn may be: empty, or holding a token that only the template writes."""
    if not run:
        return "no token"
    forged = set(codec.template_only_ids) & set(run)
    return f"token {min(forged)} is the template's" if forged else None
