"""Model completions through the host's gateway. The agent holds no key and no address.

The host rebuilds each request from an allow-list: text messages, a listed model, temperature, max_tokens, seed, and
the canonical schemas of the run's tools. Prefilled assistant turns and forced tool choices are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena_sdk import _link

TYPE_CHECKING = False  # the name checkers know: at run time, `typing` takes longer than all else that an agent needs
if TYPE_CHECKING:
    from typing import Any


class Reply(dict[str, "Any"]):
    """One completion: a plain dict (so it can be returned, dumped and compared) with its keys as attributes too."""

    content: str  # the text of the answer
    reasoning: str  # the reasoning text, when the endpoint gives it apart
    tool_calls: list[dict[str, str]]  # each with `id`, `name` and `arguments`, the JSON text as the model emitted it
    message: dict[str, Any]  # the assistant message in the protocol's form, to be appended to `messages` as it is
    finish_reason: str  # why the model stopped: `stop`, `tool_calls`, `length`
    usage: dict[str, int]  # `prompt_tokens` and `completion_tokens`, as the endpoint charged them

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)


def models() -> list[str]:
    """The model ids the policy allows, preferred first."""
    return list(_link.models)


def chat(
    messages: Sequence[dict[str, Any]],
    model: str | None = None,
    tools: Sequence[dict[str, Any]] | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    **options: object,
) -> Reply:
    """One completion of `messages`. `model` defaults to the first of `models()`.

    Raises ToolError A1040 (malformed request), A1041 (model not listed) or A1042 (prefill or forced choice).
    """
    params: dict[str, object] = {"messages": list(messages), "model": model or (models() or [""])[0], **options}
    given = {"tools": tools and list(tools), "temperature": temperature, "max_tokens": max_tokens}
    answer: Any = _link.request("llm.chat", params | {name: one for name, one in given.items() if one is not None})
    return Reply(answer)
