"""The oracle's models without an endpoint: annotators that quote what is there, an author, and scripted shoppers.

Deterministic, and honest in form: every citation is copied from the rendered trace, so the same checks run as
with a real model. Its decisions say nothing about quality: the supervisor accepts a run that compares before it
commits. For tests, the demo, and trying the stages out before paying for them.
"""

from __future__ import annotations

import contextlib
import re
from typing import NamedTuple

import msgspec

from foundation.errors import Failure
from harness.inference.client import read_reply
from harness.inference.port import ModelReply
from harness.inference.scripted.model import MODELS, complete
from judge.citations import QUOTE_LENGTH_MIN

ANNOTATOR = "scripted-annotator"
_HEADER = re.compile(r"^\[\[span (\d+) \| (\w+)(.*)\]\]$")
_KINDS = re.compile(r"of kind: ([a-z or]+)\.")
_QUOTE_CHARS = 200
_SEARCH = "find_product"


class _Shown(NamedTuple):
    """A span of the text that was shown."""

    number: int
    kind: str
    rest: str  # of its header
    content: str


class ScriptedAnswers:
    """An `Upstream` whose every reply is one JSON object, made of what stands in the request. Thread-safe: it has no
    state."""

    name = "scripted"

    def answer(self, system: str, shown: str) -> object:
        """The object for a system prompt and the first user message."""
        raise NotImplementedError

    def complete(self, request: str) -> ModelReply:
        """The reply to a request."""
        fields = msgspec.json.decode(request)
        system, shown = (message["content"] for message in fields["messages"][:2])
        text = msgspec.json.encode(self.answer(system, shown)).decode()
        return ModelReply(
            model=fields["model"],
            content=text,
            prompt_tokens=sum(len(message["content"]) for message in fields["messages"]) // 4,
            completion_tokens=len(text) // 4,
            message=msgspec.json.encode({"role": "assistant", "content": text}).decode(),
        )

    def probe(self, request: str) -> Failure | None:
        """It always answers."""
        return None


class ScriptedOracle(ScriptedAnswers):
    """Plays every role."""

    def complete(self, request: str) -> ModelReply:
        """The reply to an annotator's or author's request under `ANNOTATOR`, else the scripted shopper's."""
        fields = msgspec.json.decode(request)
        return (
            read_reply(msgspec.json.encode(complete(fields)))
            if fields["model"] in MODELS
            else super().complete(request)
        )

    def answer(self, system: str, shown: str) -> object:
        """An annotation or a tasklet."""
        found: list[tuple[int, str, str, list[str]]] = []
        for line in shown.split("\n"):
            if header := _HEADER.match(line):
                found.append((int(header[1]), header[2], header[3], []))
            elif line.startswith("| ") and found:
                found[-1][3].append(line[2:])
        spans = [_Shown(number, kind, rest, "\n".join(lines)) for number, kind, rest, lines in found]
        return _annotation(system, spans) if "You annotate" in system else _tasklet(spans)


def _annotation(system: str, spans: list[_Shown]) -> dict[str, object]:
    asked = _KINDS.search(system)
    kinds = asked[1].split(" or ") if asked else []
    quotes = [
        (number, line[:_QUOTE_CHARS].strip())
        for number, kind, _, content in spans
        if kind in kinds
        for line in content.split("\n")
        if len(" ".join(line[:_QUOTE_CHARS].split())) >= QUOTE_LENGTH_MIN
    ]
    number, quote = quotes[-1] if quotes else (1, spans[0][3][:_QUOTE_CHARS])
    searches = sum(kind == "call" and _SEARCH in rest for _, kind, rest, _ in spans)
    reply: dict[str, object] = {
        "score": min(1.0, 0.4 + 0.2 * searches),
        "citations": [{"span": number, "quote": quote}],
        "explanation": f"{searches} searches; the passage cited is where it is decided.",
    }
    if '"train_use_decision"' in system:
        reply["train_use_decision"] = searches > 0
    return reply


def _tasklet(spans: list[_Shown]) -> dict[str, object]:
    """The request itself, with the searches that were made added where it lacks their words."""
    query = spans[0][3]
    terms = []
    for _, kind, rest, content in spans:
        if kind == "call" and _SEARCH in rest:
            with contextlib.suppress(msgspec.DecodeError):
                arguments = msgspec.json.decode(content)
                if isinstance(arguments, dict) and arguments.get("q"):
                    terms.append(arguments["q"])
    known = set(re.findall(r"\w+", query.casefold()))
    added = [term for term in terms if not set(re.findall(r"\w+", str(term).casefold())) <= known]
    prompt = f"{query} Words that describe it: {'; '.join(map(str, added))}" if added else query
    return {"prompt": prompt, "search_terms": [str(term) for term in terms] or [query]}
