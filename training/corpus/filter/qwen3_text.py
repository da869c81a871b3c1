"""The text a trainer's tokenizer sees of a trace: Qwen3's chat template, written out.

Promise: `render` gives the text of Qwen3's current chat template (that of TRL 1.16) for the messages and tools of a
trace, character by character; golden texts rendered by the template itself hold it. Written out because counting the
tokens of a day must not need the training engine, and since a template takes ten times as long. The arguments of a call
are text and stand as they were written.

Not for training rows: those are rendered to token ids with their mask by `renderers`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from training.corpus.model import Message, Trace

RENDERING = "qwen3-chat/2"  # 2: tools in the order in which a served model reads them

_TOOLS_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_AFTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call><|im_end|>\n"
)


_ENVELOPE = ("type", "function", "name", "description", "parameters")


def served_tools(tools: str) -> list[Any]:
    """Tool schemas with their keys in the order in which a served model reads them.

    The harness sends sorted keys upstream; vLLM's chat endpoint puts the fields of its own types in their order again
    (`ChatCompletionToolsParam`, `FunctionDefinition`), and the parameters stay sorted. A row rendered in another order
    would have another prompt than every episode. Raises ValueError when `tools` is no JSON array.
    """
    decoded = json.loads(tools)
    if not isinstance(decoded, list):
        raise ValueError("tools are not a JSON array")
    return [_in_order(tool, _ENVELOPE) for tool in decoded]


def render(trace: Trace) -> str:
    """The text of a trace, without a prompt for another turn. Raises ValueError when its tools are no JSON array."""
    messages = trace.messages
    latest_query = _latest_query(messages)
    parts = [_opening(messages, _tools_text(trace.tools))]
    for index, message in enumerate(messages):
        if message.role == "assistant":
            parts.append(_assistant(message, index > latest_query, index == len(messages) - 1))
        elif message.role == "tool":
            parts.append(_result(messages, index))
        elif message.role == "user" or index:
            parts.append(f"<|im_start|>{message.role}\n{message.content}<|im_end|>\n")
    return "".join(parts)


def _opening(messages: Sequence[Message], tools: str) -> str:
    system = messages[0].content if messages and messages[0].role == "system" else None
    if tools:
        before = "" if system is None else f"{system}\n\n"
        return f"<|im_start|>system\n{before}{_TOOLS_BEFORE}{tools}{_TOOLS_AFTER}"
    return "" if system is None else f"<|im_start|>system\n{system}<|im_end|>\n"


@functools.lru_cache(maxsize=64)
def _tools_text(tools: str) -> str:
    """One line a tool, as `tojson` writes it: the keys in their order, a space after each separator."""
    return "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in served_tools(tools))


def _in_order(value: Any, first: Sequence[str]) -> Any:
    """`value` with the keys of `first` before the others, which are sorted, and all keys below `parameters` sorted."""
    if isinstance(value, list):
        return [_in_order(item, first) for item in value]
    if not isinstance(value, dict):
        return value
    keys = [key for key in first if key in value] + sorted(key for key in value if key not in first)
    return {key: _in_order(value[key], () if key == "parameters" else first) for key in keys}


def _latest_query(messages: Sequence[Message]) -> int:
    """The place of the last message a user wrote himself; thinking before it is left out by the template."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role == "user" and not (
            message.content.startswith("<tool_response>") and message.content.endswith("</tool_response>")
        ):
            return index
    return len(messages) - 1


def _assistant(message: Message, is_after_query: bool, is_last: bool) -> str:
    reasoning, content = message.reasoning, message.content
    if not reasoning and "</think>" in content:
        reasoning = content.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
        content = content.split("</think>")[-1].lstrip("\n")
    shown = content
    if is_after_query and (is_last or reasoning):
        thought = reasoning.strip("\n")
        shown = f"<think>\n{thought}\n</think>\n\n" + content.lstrip("\n")
    parts = [f"<|im_start|>assistant\n{shown}"]
    for number, call in enumerate(message.calls):
        gap = "\n" if number or content else ""
        parts.append(f'{gap}<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>')
    return "".join(parts) + "<|im_end|>\n"


def _result(messages: Sequence[Message], index: int) -> str:
    opens = not index or messages[index - 1].role != "tool"
    closes = index == len(messages) - 1 or messages[index + 1].role != "tool"
    start, end = "<|im_start|>user" if opens else "", "<|im_end|>\n" if closes else ""
    return f"{start}\n<tool_response>\n{messages[index].content}\n</tool_response>{end}"
