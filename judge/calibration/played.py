"""A run that is played: real tools over a real index, recorded by the recorder, with a model that reads its lines.

What comes out is what any episode leaves (emitters, surfaced ids, interned messages, the ledger's hash). Only
the jail and the model are stood in for, since both ends are ours.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any

import msgspec

from foundation.canonical import foreign_text, text_hash
from harness.catalogue.port import Catalogue
from harness.inference.port import GatewayAnswer, ModelReply
from harness.sandbox.port import EpisodeOver, GuestExit, GuestJob, Host, SandboxLevel
from harness.session import EpisodePorts, EpisodeRules, run_episode
from harness.tools.registry import make_toolbox
from harness.trace import EmittedCall, EvaluationBody
from problems.model import Problem

_SYSTEM = "You are a shopping assistant. Use the tools to find what the shopper asks for, then recommend it."
_RULES = EpisodeRules(policy_sha256="0" * 64, catalogue_sha256="0" * 64, models=("played",))
_BYTES_PER_TOKEN = 4


class PlayedCall(msgspec.Struct, frozen=True):
    """A tool call of a turn."""

    name: str
    arguments: Mapping[str, object]


class PlayedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One step: what the program says first, what the model says, and the calls that follow.

    `is_native`: the model writes the calls; else the program makes them after the words.
    """

    words: str
    reasoning: str = ""
    calls: tuple[PlayedCall, ...] = ()
    is_native: bool = True
    program: str = ""


Script = Generator[PlayedTurn, list[Any], None]  # is sent the decoded results of each turn's calls


def play(problem: Problem, catalogue: Catalogue, script: Script) -> EvaluationBody:
    """The body of one played episode. Raises ArenaError as `run_episode`."""
    stage = _PlayedPorts(script)
    ports = EpisodePorts(toolbox=make_toolbox("sn15", catalogue, problem), gateway=stage, sandbox=stage)
    return run_episode("# played", problem, ports, _RULES).body


class _PlayedPorts:
    """The sandbox and the gateway of a played episode."""

    level = SandboxLevel(
        name="reference-agents-only", layers=(), guest_sha256="0" * 64, python_version="3", may_race=False
    )

    def __init__(self, script: Script) -> None:
        self._script = script
        self._turn = PlayedTurn(words="")

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        """Play the script to its end (`Sandbox.run`)."""
        messages: list[object] = [
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": json.loads(job.problem)["query"]},
        ]
        try:
            self._turn = next(self._script)
            while True:
                if self._turn.program:
                    messages.append({"role": "user", "content": self._turn.program})
                answer: Any = host.call("llm.chat", {"messages": messages})
                messages.append(answer["message"])
                results = []
                for number, call in enumerate(self._turn.calls):
                    told: Any = host.call("tool.call", {"name": call.name, "arguments": foreign_text(call.arguments)})
                    messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": told["result"]})
                    results.append(json.loads(told["result"]))
                self._turn = self._script.send(results)
        except EpisodeOver:
            return GuestExit(end="stopped")
        except StopIteration:
            return GuestExit(end="final", claim="null")

    def chat(self, params: dict[str, object], *, completion_tokens_left: int) -> GatewayAnswer:
        """The turn's words as a completion (`ModelGateway.chat`)."""
        turn = self._turn
        calls = tuple(
            EmittedCall(call_id=f"call_{number}", name=call.name, arguments=foreign_text(call.arguments))
            for number, call in enumerate(turn.calls)
            if turn.is_native
        )
        message: dict[str, object] = {"role": "assistant", "content": turn.words}
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        if calls:
            functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
            message["tool_calls"] = [
                {"id": f"call_{number}", "type": "function", "function": function}
                for number, function in enumerate(functions)
            ]
        sent = params["messages"]
        assert isinstance(sent, list)
        messages = tuple(foreign_text(one) for one in sent)
        said = len((turn.words + turn.reasoning).encode()) + sum(len(call.arguments) for call in calls)
        reply = ModelReply(
            model="played",
            content=turn.words,
            reasoning=turn.reasoning,
            calls=calls,
            finish_reason="stop",
            prompt_tokens=sum(map(len, messages)) // _BYTES_PER_TOKEN,
            completion_tokens=max(1, said // _BYTES_PER_TOKEN),
            message=foreign_text(message),
        )
        return GatewayAnswer(
            reply=reply, messages=messages, request_sha256=text_hash("".join(messages)), model_ms=0, model="played"
        )
