"""Qwen3's chat format as tokens: rendering, masks, parsing and continuing, by PrimeIntellect's `renderers`.

The renderer is named, never guessed (a guessed one trains scaffolding); it is compared with the tokenizer's own chat
template when it opens; nothing is ever cut; what was sampled is appended as ids. A mask is right when the tokens it
marks are the assistant's text and nothing else: the check reads tokens back as text and does not trust the renderer.
Sources: paper B.1 and B.2.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from typing import Any

from foundation.errors import ArenaError
from harness.chat import Call, Message, chat_row, served_message, served_tools
from training.model import TokenRow, UnfitRowError

# The template writes it before a last turn of text that has no reasoning; a policy that thinks freely never does.
EMPTY_THOUGHT = "<think>\n\n</think>\n\n"

_HEADER = "<|im_start|>assistant\n"
_HEADER_TOKENS_MAX = 20  # a tokenizer may write the header's words in pieces; an empty thought may stand behind it
_THOUGHT_END = "</think>"
_CALL_START = "<tool_call>"
_CALLS = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)


def masked_runs(token_ids: Sequence[int], mask: Sequence[int]) -> list[tuple[int, ...]]:
    """The runs of tokens whose mask is 1, in order. Raises ValueError when the two differ in length."""
    runs = itertools.groupby(zip(token_ids, mask, strict=True), key=itemgetter(1))
    return [tuple(token for token, _ in run) for bit, run in runs if bit]


def mask_defect(row: TokenRow, messages: Iterable[Message], codec: Qwen3Codec) -> str | None:
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


def run_defect(run: Sequence[int], codec: Qwen3Codec) -> str | None:
    """What no sampled turn may hold: a token that only the template writes."""
    forged = set(codec.template_only_ids) & set(run)
    return f"holds the template's token {min(forged)}" if forged else None


def _reading_defect(run: tuple[int, ...], turn: Message, codec: Qwen3Codec) -> str | None:
    read = codec.parse(run)
    thought, said = _thought_and_said(turn)
    # Earlier turns lose their reasoning where the template strips it; what is there must be the turn's own.
    if read.content.strip() != said or read.reasoning.strip() not in ("", thought):
        return "reads back as other text"
    if [call.name for call in read.calls] != [call.name for call in turn.calls]:
        return "reads back with other calls"
    return None


def _thought_and_said(turn: Message) -> tuple[str, str]:
    """Reasoning and text of a turn, as the template takes them apart where thinking stands inside the text."""
    if turn.reasoning or _THOUGHT_END not in turn.content:
        return turn.reasoning.strip(), turn.content.strip()
    thought, _, said = turn.content.rpartition(_THOUGHT_END)
    return thought.partition(_THOUGHT_END)[0].rpartition("<think>")[2].strip(), said.strip()


def read_calls(text: str) -> tuple[Call, ...]:
    """The calls of a turn's text as vLLM's `hermes` parser reads them, which serves re-entered models: every block has
    to be JSON with a name and arguments, or none is a call; thoughts are searched too, and the last block needs no end.
    Source: vllm/tool_parsers/hermes_tool_parser.py."""
    blocks = [closed or rest for closed, rest in _CALLS.findall(text)]
    try:
        read = [json.loads(block) for block in blocks]
        written = [(one["name"], json.dumps(one["arguments"], ensure_ascii=False)) for one in read]
    except (ValueError, TypeError, LookupError, RecursionError):
        return ()
    if not all(isinstance(name, str) for name, _ in written):
        return ()
    named = enumerate(written)
    return tuple(Call(id=f"call-{i}", name=name, arguments=given, emitter="llm") for i, (name, given) in named)


# Written by the template alone; sampled inside a turn they would forge the conversation's frame.
TEMPLATE_ONLY = ("<|im_start|>", "<tool_response>", "</tool_response>")

_PARITY_TOOLS = (
    '[{"type":"function","function":{"name":"find_product","description":"Search","parameters":'
    '{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}}}]'
)
_PARITY = (
    Message(role="system", content="You are a shopping assistant."),
    Message(role="user", content="Find a red t-shirt under 20 €, 日本."),
    Message(
        role="assistant",
        reasoning="Search first.",
        calls=(Call(id="1", name="find_product", arguments='{"q": "red t-shirt"}'),),
    ),
    Message(role="tool", content='[{"product_id": "1"}]', call_id="1"),
    Message(role="assistant", content="Found one.", reasoning="It fits."),
)


class Qwen3Codec:
    """The chat codec over a tokenizer folder (tokenizer.json and tokenizer_config.json)."""

    def __init__(self, folder: Path) -> None:
        """Raises ArenaError V2120 when the folder holds no tokenizer, or its template renders other tokens."""
        from renderers import Qwen3RendererConfig, create_renderer
        from transformers import AutoTokenizer

        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
            tokens = (folder / "tokenizer.json").read_bytes()
        except (OSError, ValueError) as error:
            raise ArenaError("V2120", f"{folder}: {error}") from error
        self.stop_id = int(self.tokenizer.eos_token_id)  # the token that ends an assistant turn
        self._renderer: Any = create_renderer(self.tokenizer, Qwen3RendererConfig())
        template = str(self.tokenizer.chat_template or "")
        software = f"renderers {version('renderers')} tokenizers {version('tokenizers')}"
        # of tokenizer, template and the versions of renderer and tokenizer library
        self.identity_sha256 = hashlib.sha256(b"\n".join([tokens, template.encode(), software.encode()])).hexdigest()
        self._empty_thought = tuple(self.tokenizer.encode(EMPTY_THOUGHT, add_special_tokens=False))
        self.template_only_ids: tuple[int, ...] = tuple(map(self.tokenizer.convert_tokens_to_ids, TEMPLATE_ONLY))
        self._require_parity(folder)

    def prompt(self, messages: tuple[Message, ...], tools: str) -> tuple[int, ...]:
        """Ids up to and with the generation prompt."""
        return tuple(self._renderer.render_ids(_rows(messages), tools=_tools(tools), add_generation_prompt=True))

    def row(self, trace_id: str, messages: tuple[Message, ...], tools: str, tokens_max: int) -> TokenRow:
        """A trace with labels on the turns the model wrote (`is_model`), their stop tokens among them.

        Raises UnfitRowError for a row over `tokens_max` tokens or one without a token to learn.
        """
        from renderers import build_training_sample

        is_learnt = [int(message.role == "assistant" and message.is_model) for message in messages]
        if not any(is_learnt):  # an episode without a request has no message at all
            raise UnfitRowError(f"{trace_id[:12]}: no assistant turn to learn")
        sample = build_training_sample(
            self._renderer,
            _rows(messages),
            tools=_tools(tools),
            message_loss_mask=is_learnt,
        )
        mask = self._without_empty_thought(sample.token_ids, [int(bit) for bit in sample.loss_mask])
        if len(mask) > tokens_max:
            raise UnfitRowError(f"{trace_id[:12]}: {len(mask)} tokens, {tokens_max} are allowed")
        return TokenRow(trace_id=trace_id, token_ids=tuple(sample.token_ids), mask=mask, prompt_length=mask.index(1))

    def parse(self, token_ids: tuple[int, ...]) -> Message:
        """A sampled turn: its text, reasoning and calls, as the endpoint of a race reads them (`read_calls`)."""
        ids = token_ids[: token_ids.index(self.stop_id)] if self.stop_id in token_ids else token_ids
        text = self.decode(ids)
        calls = read_calls(text)
        said = text[: text.find(_CALL_START)] if calls else text
        thought, end, after = said.partition(_THOUGHT_END)
        if not end and (calls or "<think>" not in said):
            thought, after = "", said
        return Message(
            role="assistant",
            content=after.strip(),
            reasoning=thought.partition("<think>")[2].strip() or thought.strip(),
            calls=calls,
        )

    def bridge(
        self, prompt_ids: tuple[int, ...], sampled: tuple[int, ...], messages: tuple[Message, ...], tools: str
    ) -> tuple[int, ...] | None:
        """The next prompt, which begins with `prompt_ids` + `sampled`; None where the format can't be continued."""
        bridged = self._renderer.bridge_to_next_turn(
            list(prompt_ids), list(sampled), _rows(messages), tools=_tools(tools)
        )
        if bridged is None:
            return None
        ids = tuple(bridged.token_ids)
        return ids if ids[: len(prompt_ids) + len(sampled)] == prompt_ids + sampled else None

    def decode(self, token_ids: tuple[int, ...]) -> str:
        """Text of ids, specials included."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=False))

    def _without_empty_thought(self, token_ids: Sequence[int], mask: list[int]) -> tuple[int, ...]:
        """The mask without the empty thought that the template, and no policy, puts before a last turn of text."""
        last = max((place for place in range(len(mask)) if mask[place] and not (place and mask[place - 1])), default=0)
        end = last + len(self._empty_thought)
        if tuple(token_ids[last:end]) == self._empty_thought and all(mask[last:end]):
            mask[last:end] = [0] * len(self._empty_thought)
        return tuple(mask)

    def _require_parity(self, folder: Path) -> None:
        messages = [chat_row(message) for message in _PARITY]
        tools = _tools(_PARITY_TOOLS)
        theirs = self.tokenizer.apply_chat_template(messages, tools=tools, return_dict=True)["input_ids"]
        ours = self._renderer.render_ids(messages, tools=tools)
        if list(theirs) != list(ours):
            differing = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), -1)
            raise ArenaError("V2120", f"{folder}: the chat template and the renderer differ from token {differing} on")


def _rows(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Messages as a served model reads them."""
    return [chat_row(served_message(message)) for message in messages]


def _tools(tools: str) -> list[Any] | None:
    """The tool schemas as a served model reads them, or None where a trace has none."""
    return json.loads(served_tools(tools)) or None
