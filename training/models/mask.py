"""Is a mask exact? A mask is right when the tokens it marks are the assistant's text, and nothing else.

The check does not trust the renderer that made the mask: it reads tokens back as text and compares that with
the messages. Rows that fail are dropped and counted; too many stop the run (paper B.2, "mask validation").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from harness.chat import Message
from training.model import ChatCodec, TokenRow

# The template writes it before a last turn of text that has no reasoning; a policy that thinks freely never does.
EMPTY_THOUGHT = "<think>\n\n</think>\n\n"

_HEADER = "<|im_start|>assistant\n"
_HEADER_TOKENS_MAX = 20  # a tokenizer may write the header's words in pieces; an empty thought may stand behind it
_THOUGHT_END = "</think>"


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
    """What is wrong with a row's mask, or None.

    Each run must begin right after the header of an assistant turn, end with the one stop token, and read back as its
    turn: a token too many on either side would teach the template's own writing.
    """
    turns = [message for message in messages if message.role == "assistant" and message.is_model]
    runs = masked_runs(row.token_ids, row.mask)
    if len(runs) != len(turns):
        return f"{len(runs)} masked runs for {len(turns)} assistant turns"
    first = -1
    for number, (run, turn) in enumerate(zip(runs, turns, strict=True)):
        first = row.mask.index(1, first + 1)
        before = codec.decode(row.token_ids[max(0, first - _HEADER_TOKENS_MAX) : first])
        if not before.removesuffix("" if _thought_and_said(turn)[0] else EMPTY_THOUGHT).endswith(_HEADER):
            return f"turn {number} does not begin after the header of an assistant turn"
        if run.count(codec.stop_id) != 1 or run[-1] != codec.stop_id:
            return f"turn {number} does not end with its stop token"
        defect = run_defect(run, codec) or _reading_defect(run, turn, codec)
        if defect:
            return f"turn {number} {defect}"
        first += len(run) - 1
    return None


def run_defect(run: Sequence[int], codec: ChatCodec) -> str | None:
    """What no sampled turn may be: empty, or holding a token that only the template writes."""
    if not run:
        return "has no token"
    forged = set(codec.template_only_ids) & set(run)
    return f"holds the template's token {min(forged)}" if forged else None


def _reading_defect(run: tuple[int, ...], turn: Message, codec: ChatCodec) -> str | None:
    read = codec.parse(run)
    thought, said = _thought_and_said(turn)
    # Earlier turns lose their reasoning where the template strips it; what is there must be the turn's own.
    if read.message.content.strip() != said or read.message.reasoning.strip() not in ("", thought):
        return "reads back as other text"
    names = [call.name for call in turn.calls if _is_object(call.arguments)]
    if [call.name for call in read.message.calls] != names or len(names) + len(read.malformed) != len(turn.calls):
        return "reads back with other calls"
    return None


def _thought_and_said(turn: Message) -> tuple[str, str]:
    """Reasoning and text of a turn, as the template takes them apart where thinking stands inside the text."""
    if turn.reasoning or _THOUGHT_END not in turn.content:
        return turn.reasoning.strip(), turn.content.strip()
    thought, _, said = turn.content.rpartition(_THOUGHT_END)
    return thought.partition(_THOUGHT_END)[0].rpartition("<think>")[2].strip(), said.strip()


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False
