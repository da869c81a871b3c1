"""How much of a completion was already in its request: repetition is not inference.

The share is counted by code from recorded bytes: runs of words of the completion (its prose and the arguments of its
calls) that stand in the system or user messages the program sent, except runs that stand in the shopper's query or in
a tool result returned before, since quoting data is what a reasoner does. A completion without prose is as much an echo
as the calls that came out of it (`harness.trace.Emitter`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from harness.trace import Completion, Emitter, EvaluationBody, ToolCall

_WORD = re.compile(r"[^\W_]+")
_RUN = 8

Run = tuple[str, ...]


def echo_shares(body: EvaluationBody) -> dict[int, int]:
    """Step -> share of the completion's word runs (or calls, without prose) that were echoed, in ten-thousandths."""
    program = [_program_words(message) for message in body.messages]
    data = [_words(body.query)]
    shares: dict[int, int] = {}
    emitters: dict[int, list[Emitter]] = {}
    silent: list[int] = []
    for event in body.events:
        if isinstance(event, ToolCall):
            data.append(_words(event.result))
            emitters.setdefault(event.step, []).append(event.emitter)
        elif isinstance(event, Completion):
            sent = [program[index] for index in event.request if index < len(program)]
            shares[event.step] = _share(_completion_words(event), sent, data)
            if not (event.reasoning + event.content).strip():
                silent.append(event.step)
    for step in silent:
        written = [emitter for emitter in emitters.get(step, ()) if emitter != "code"]
        if written:
            shares[step] = max(shares[step], 10_000 * written.count("echoed") // len(written))
    return shares


def _share(words: Run, sent: Iterable[Run], data: Iterable[Run]) -> int:
    size = min(_RUN, len(words))
    if size == 0:
        return 0
    runs = list(_runs(words, size))
    wanted = set(runs)
    echoed = {run for text in sent for run in _runs(text, size) if run in wanted}
    if not echoed:
        return 0
    echoed -= {run for text in data for run in _runs(text, size) if run in echoed}
    return 10_000 * sum(run in echoed for run in runs) // len(runs)


def _completion_words(completion: Completion) -> Run:
    calls = " ".join(f"{call.name} {call.arguments}" for call in completion.calls)
    return _words(f"{completion.reasoning} {completion.content} {calls}")


def _program_words(message: str) -> Run:
    """Words of a message the program wrote; assistant turns and tool results are no program text."""
    try:
        decoded = msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _words(message)
    if not isinstance(decoded, dict) or decoded.get("role") in ("assistant", "tool"):
        return ()
    return _words(" ".join(_texts(decoded.get("content"))))


def _texts(content: object) -> Iterable[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            yield from _texts(part.get("text") if isinstance(part, dict) else part)


def _words(text: str) -> Run:
    return tuple(_WORD.findall(text.lower()))


def _runs(words: Run, size: int) -> Iterable[Run]:
    return zip(*(words[offset:] for offset in range(size)), strict=False)
