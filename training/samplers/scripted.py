"""The scripted model as a sampler that speaks tokens: a policy that shops well without a single weight.

It sees what a model sees, the ids of the prompt, and nothing else; its turns are rendered by the codec, so
they are tokens a model could have sampled. It is certain of every token (logprob 0), whatever the decoding. It is used
where a stage needs a policy that succeeds: the smoke run, whose own model is random, and the control of an evaluation.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from foundation.errors import ArenaError
from harness.chat import Call, Message
from harness.inference.client import read_reply
from harness.inference.scripted.model import complete
from harness.inference.scripted.shopper import SKILLS
from training.model import Decode, Sampled
from training.models.render import Qwen3Codec, masked_runs

EXPERT = "scripted-expert"

_TURN = re.compile(r"<\|im_start\|>(system|user|assistant)\n(.*?)<\|im_end\|>", re.DOTALL)
_TOOLS = re.compile(r"\n<tools>\n(.*?)\n</tools>\n", re.DOTALL)
_RESULT = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)
_CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)
_WHOLE_TRACE = 1 << 30  # tokens: a turn is rendered whole, and cut by the decoding alone


class ScriptedSampler:
    """A `training.model.Sampler` over the scripted model of one skill."""

    def __init__(self, codec: Qwen3Codec, model: str = EXPERT) -> None:
        """Raises ArenaError U3001 for a model that does not exist; an empty name is the expert's."""
        if (model or EXPERT) not in SKILLS:
            raise ArenaError("U3001", f"scripted model {model!r} does not exist; known: {', '.join(SKILLS)}")
        self._codec, self._model = codec, model or EXPERT

    @property
    def version(self) -> str:
        """The scripted model's name."""
        return self._model

    def sample(self, prompt_ids: tuple[int, ...], decode: Decode, seed: int) -> Sampled:
        """One turn; `seed` and temperature change nothing."""
        reply = read_reply(msgspec.json.encode(complete(read_prompt(self._codec.decode(prompt_ids), self._model))))
        calls = tuple(Call(id=call.call_id, name=call.name, arguments=call.arguments) for call in reply.calls)
        turn = Message(role="assistant", content=reply.content.strip(), calls=calls)
        row = self._codec.row("", (Message(role="user", content="?"), turn), "[]", _WHOLE_TRACE)
        ids = masked_runs(row.token_ids, row.mask)[0]  # between the generation prompt and the end of the turn
        cut = ids[: decode.turn_tokens_max]
        return Sampled(token_ids=cut, logprobs=(0.0,) * len(cut), finish="stop" if cut == ids else "length")


def read_prompt(text: str, model: str) -> dict[str, Any]:
    """The chat request whose prompt is `text`, in Qwen3's format. A call's id is its place in the conversation."""
    messages: list[dict[str, Any]] = []
    unanswered: list[str] = []
    for role, content in _TURN.findall(text):
        results = _RESULT.findall(content) if role == "user" else []
        for result in results:
            answered = unanswered.pop(0) if unanswered else ""
            messages.append({"role": "tool", "tool_call_id": answered, "content": result})
        if results:
            continue
        message: dict[str, Any] = {"role": role, "content": content}
        if role == "assistant":
            unanswered = [f"{len(messages)}-{place}" for place in range(len(_CALL.findall(content)))]
            message = _assistant(content, unanswered)
        messages.append(message)
    found = _TOOLS.search(text)
    tools = [msgspec.json.decode(line) for line in found.group(1).splitlines()] if found else []
    return {"model": model, "messages": messages, "tools": tools}


def _assistant(content: str, ids: list[str]) -> dict[str, Any]:
    calls = []
    for call_id, written in zip(ids, _CALL.findall(content), strict=True):
        try:
            call = msgspec.json.decode(written, type=dict[str, Any])
            function = {"name": call["name"], "arguments": msgspec.json.encode(call["arguments"]).decode()}
        except (msgspec.DecodeError, KeyError):  # another model's turn: the scripted one passes over it
            function = {"name": "", "arguments": "{}"}
        calls.append({"id": call_id, "type": "function", "function": function})
    return {"role": "assistant", "content": _CALL.sub("", content).strip(), "tool_calls": calls}
