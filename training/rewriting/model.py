"""What rewriting passes on: the steps of a run that code drove, the thoughts written for them, and what was left out.

Values only. A rewrite holds thoughts and nothing else of a row: calls, results and recommendation always come
from the record, so no writer can change them.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from training.corpus.model import Rewritten
from training.trac.model import Usage

REWRITE_VERSION = 1

LeftOutCode = Literal[
    "not_a_success",  # only successful runs show a way worth learning
    "already_agentic",  # the model chose its calls: there is nothing to lift
    "not_in_order",  # a call without a result: no steps to think between
    "no_answer",  # nothing was recommended
    "too_long",  # more steps than the rules allow
    "kept_out",  # the corpus would not take it, whatever is thought: its detail names the rules of the filter
    "not_answered",  # the writer's endpoint answers, but not the question about one step: too long, or too slow
    "not_grounded",  # a thought was refused as often as the rules allow
]
LEFT_OUT_CODES: tuple[LeftOutCode, ...] = get_args(LeftOutCode)


class CallStep(msgspec.Struct, frozen=True, kw_only=True):
    """One call that code chose, with what came back. `arguments` is JSON text, both byte for byte as recorded."""

    name: str
    arguments: str
    result: str


class CallTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its calls in the order in which they were made."""

    query: str
    steps: tuple[CallStep, ...]


class RewriteRules(msgspec.Struct, frozen=True, kw_only=True):
    """How thoughts are asked for."""

    steps_max: int = 40
    replies_max: int = 3  # to one step, the refused ones included
    reply_tokens_max: int = 400
    result_chars: int = 6_000  # of one result that the writer is shown; checks read all of it


class Rewrite(msgspec.Struct, frozen=True, kw_only=True):
    """The thoughts of one run, one before each call."""

    version: int = REWRITE_VERSION
    trace_id: str
    place: str
    by: Rewritten
    thoughts: tuple[str, ...]
    refused: int = 0  # replies that did not stand up to the checks on the way


class OmittedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was not rewritten, and why."""

    trace_id: str
    place: str
    code: LeftOutCode
    detail: str = ""


class RewriteReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run: how many traces were rewritten and left out, by code, and what was paid."""

    rules: RewriteRules
    writer: str
    prompt_sha256: str
    sources: tuple[str, ...]  # sha256 of each manifest
    traces: int
    rewritten: int
    steps: int  # thoughts in all
    refused: int  # replies
    left_out: tuple[tuple[LeftOutCode, int], ...]
    usage: tuple[Usage, ...]
