"""A model endpoint of an episode that speaks tokens: the gateway's requests in, sampled ids out, with their logprobs.

A conversation that only grows is never tokenised anew: the next prompt is the last prompt, the sampled ids and
what the template writes for the new messages. Where an agent rewrites its prompt, the prompt is rendered afresh and the
turn says so. The completion carries its ids and logprobs into the record's body, so a rollout can be read from a body.
How turns are sampled is the run's decision: what the agent asks for (temperature, seed) is not followed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from foundation.errors import Failure
from harness.chat import Call, Message, chat_row
from harness.inference.port import ModelReply
from harness.sandbox.port import GuestCallError
from harness.trace import EmittedCall
from training.model import ChatCodec, Decode, Sampler

CONTEXT_FULL = "the context is full"


class TurnTokens(msgspec.Struct, frozen=True, kw_only=True):
    """What is in `Completion.logprobs`, as JSON: the tokens of one turn.

    `prompt` are the ids added since the turn before (all of them for a prompt rendered afresh: `is_continued` False).
    """

    version: str
    is_continued: bool
    prompt: tuple[int, ...]
    sampled: tuple[int, ...]
    logprobs: tuple[float, ...]
    malformed: int = 0


class TokenUpstream:
    """An `Upstream` for one episode. Not thread-safe: an episode asks one thing at a time."""

    def __init__(self, sampler: Sampler, codec: ChatCodec, decode: Decode, seed: int) -> None:
        self._sampler, self._codec, self._decode, self._seed = sampler, codec, decode, seed
        self._turn = 0
        self._sent: tuple[Message, ...] = ()  # messages up to the last reply, it included
        self._ids: tuple[int, ...] = ()  # prompt of the last turn
        self._sampled: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The weights' version."""
        return self._sampler.version

    def probe(self, request: str) -> Failure | None:
        """There is nothing to ask beside the conversation: a sampler that can't answer it is away."""
        return Failure(code="U3002")

    def complete(self, request: str) -> ModelReply:
        """One turn. Raises GuestCallError A1040 when the prompt leaves no room in the context."""
        fields = msgspec.json.decode(request, type=dict[str, Any])
        messages = tuple(_message(message) for message in fields["messages"])
        tools = msgspec.json.encode(fields.get("tools", [])).decode()
        prompt, added, is_continued = self._prompt(messages, tools)
        room = self._decode.context_tokens_max - len(prompt)
        if room < 1:
            raise GuestCallError("A1040", f"{CONTEXT_FULL}: the prompt has {len(prompt)} tokens")
        allowed = min(self._decode.turn_tokens_max, room, fields.get("max_tokens", room))
        decode = msgspec.structs.replace(self._decode, turn_tokens_max=allowed)
        sampled = self._sampler.sample(prompt, decode, self._seed * 1_000 + self._turn)
        parsed = self._codec.parse(sampled.token_ids)
        self._turn += 1
        reply = chat_row(msgspec.structs.replace(parsed.message, reasoning=""))
        self._sent, self._ids, self._sampled = (*messages, _message(reply)), prompt, sampled.token_ids
        tokens = TurnTokens(
            version=self._sampler.version,
            is_continued=is_continued,
            prompt=added,
            sampled=sampled.token_ids,
            logprobs=sampled.logprobs,
            malformed=len(parsed.malformed),
        )
        finish = "length" if sampled.finish == "length" else "tool_calls" if parsed.message.calls else "stop"
        return ModelReply(
            model=self._sampler.version,
            content=parsed.message.content,
            reasoning=parsed.message.reasoning,
            calls=tuple(
                EmittedCall(call_id=call.id, name=call.name, arguments=call.arguments) for call in parsed.message.calls
            ),
            finish_reason=finish,
            prompt_tokens=len(prompt),
            completion_tokens=len(sampled.token_ids),
            message=msgspec.json.encode(reply).decode(),
            logprobs=msgspec.json.encode(tokens).decode(),
        )

    def _prompt(self, messages: tuple[Message, ...], tools: str) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
        """(prompt, ids added since the last turn, whether it continues that turn)."""
        known = len(self._sent)
        if self._ids and messages[:known] == self._sent:
            bridged = self._codec.bridge(self._ids, self._sampled, messages[known:], tools)
            if bridged is not None:
                return bridged, bridged[len(self._ids) + len(self._sampled) :], True
        prompt = self._codec.prompt(messages, tools)
        return prompt, prompt, False


def _message(plain: dict[str, Any]) -> Message:
    calls = [
        Call(id=call.get("id", ""), name=call["function"]["name"], arguments=call["function"]["arguments"])
        for call in plain.get("tool_calls") or ()
    ]
    return Message(
        role=plain["role"],
        content=plain.get("content") or "",
        calls=tuple(calls),
        call_id=plain.get("tool_call_id", ""),
    )
