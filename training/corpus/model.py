"""What a corpus is made of: the canonical trace, why a trace is left out, the rules of a filter, and what it reports.

Every trace of whatever source is one `Trace`: an OpenAI tool-calls conversation with arguments as JSON text, and the
facts its source has. A fact the source does not have is None and named in `missing`, never a default. The
identity is a hash of conversation and tools alone: one conversation read from two sources is one trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec

from harness.chat import Message
from problems.model import Bucket, Pool

TRACE_VERSION = 1
TOKENS_MAX = 14_336  # paper A.2, rule 4 and B.1
COEFFICIENT_E4_MIN = 9_000

SourceKind = Literal["arena", "sn15", "react", "hermes", "openai", "output_tools"]
CorpusPool = Literal["train", "dev"]


class TraceSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a trace comes from: one row of one file. `place` is `<file>:<line>` or `<validator>:<seq>`."""

    kind: SourceKind
    place: str
    sha256: str
    is_verified: bool  # signatures, chain and release were checked before it was read


class TraceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the source says about a trace beside its conversation; None where it says nothing."""

    problem_id: str | None = None
    cluster_id: str | None = None
    pool: Pool | None = None
    bucket: Bucket | None = None
    suite: str | None = None
    race_id: str | None = None
    day: str | None = None  # UTC, YYYY-MM-DD
    agent: str | None = None  # agent version id
    team: str | None = None  # miner hotkey
    policy_sha256: str | None = None
    tool_profile: str | None = None
    coefficient_e4: int | None = None
    is_success: bool | None = None
    reward_e4: int | None = None
    is_agentic: bool | None = None  # from recorded emitters (docs/architecture.md#who-wrote-a-call)
    is_linear: bool | None = None  # the conversation is the whole episode, in order
    is_model_written: bool | None = None
    stop: str | None = None
    recommended: tuple[str, ...] | None = None
    surfaced: tuple[str, ...] | None = None  # product ids the search server returned in this episode


_RENAMED = {"day": "recorded_day", "agent": "agent_version_id", "team": "miner_hotkey"}
# Facts by the names that an export, an SN15 envelope and plain rows have for them. FORMATS.md says what they mean.
EXPORTED_FACTS = {
    _RENAMED.get(name, name): name for name in TraceFacts.__struct_fields__ if name not in ("recommended", "surfaced")
}


Provenance = Literal["verbatim", "rebuilt", "rewritten"]
How = Literal[
    "text_calls",  # calls that the model wrote as text stand as calls
    "events",  # turns, calls and results are put together from the record, not from a request
    "query",  # what opened the dialogue was a transcript, sent anew each time: the recorded query stands in its place
    "retries",  # turns of which nothing ran are left out: a call that nobody can read, or nothing was handed on
    "unrun_calls",  # calls of a turn that never ran and were not handed on are left out
    "asides",  # what the agent said to the model for one turn alone, or claims of turns and results, is left out
    "agent_calls",  # calls of the agent's Python stand as turns that the model did not write
    "sub_dialogue",  # other dialogues of the episode, which made no call, are left out
]
Lack = Literal["prompt", "query", "words", "remarks", "calls", "results"]  # remarks: words beside a call


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """How a conversation came about that is not, word for word, what the model was sent. Both sorted.

    `lacks`: what the conversation shows before some turn, and that turn's request did not. Thoughts do not count: no
    agent need send them back.
    """

    how: tuple[How, ...]
    lacks: tuple[Lack, ...] = ()


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """Who wrote the thoughts of a run whose calls code chose (`training.rewriting`)."""

    writer: str
    prompt_sha256: str  # of the writer's instructions


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory in canonical form. `tools` is an OpenAI `tools` array (wrapped), JSON text; "[]" for none known.

    `trace_id` is the sha256 of conversation and tools, so equal conversations are equal wherever they come from.
    """

    version: int = TRACE_VERSION
    trace_id: str
    source: TraceSource
    messages: tuple[Message, ...]
    tools: str
    query: str
    facts: TraceFacts
    missing: tuple[str, ...] = ()  # names of facts the source does not have, sorted
    rebuilt: Rebuilt | None = None  # without, and not rewritten: verbatim
    rewritten: Rewritten | None = None

    @property
    def provenance(self) -> Provenance:
        """Whether the conversation is what the model was sent and wrote, was put together, or has thoughts written for
        it afterwards."""
        if self.rewritten is not None:
            return "rewritten"
        return "verbatim" if self.rebuilt is None else "rebuilt"


class ExecutedTrace(Trace, frozen=True, kw_only=True):
    """A trace with every call that the host executed, from any emitter, in order: name, arguments, result.

    What a program called outside of the conversation stands here alone.
    """

    executed: tuple[tuple[str, str, str | None], ...]


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A row that could not be converted: counted, named and kept out."""

    place: str
    code: str
    detail: str


TraceCode = Literal[
    "coefficient",
    "pairing",
    "recommend_count",
    "recommend_arguments",
    "broken_call",
    "tokens",
    "think_stop",
    "subtask",
    "subtask_guess",
    "not_one_path",
    "view_incomplete",
]
SetCode = Literal["duplicate", "near_duplicate", "ranked_out"]
RejectCode = Literal["pool", "leak", "failed", TraceCode, SetCode, "sampled_out"]  # in the order they are applied
MEANING: dict[RejectCode, str] = {
    "pool": "not of the pools this corpus may hold",
    "leak": "its problem or answers are those of a held-out problem",
    "failed": "the outcome was no success, or nobody knows it",
    "coefficient": "the judge's reasoning coefficient is below the threshold, or there is none",
    "pairing": "a tool call is not answered once right after its turn",
    "recommend_count": "recommend_product is not called exactly once, with nothing but terminate after it",
    "recommend_arguments": "the recommendation does not parse, or names a product no search returned",
    "broken_call": "a call to learn has arguments that are no JSON object, or names a tool that was not offered",
    "tokens": "longer than the token budget",
    "think_stop": "ends without a commitment",
    "subtask": "the model did not write its own tool calls, by recorded emitters",
    "subtask_guess": "the model probably did not write its own tool calls (a guess: none were recorded)",
    "not_one_path": "the episode held several conversations",
    "view_incomplete": "put together from the record, and some turn was not shown all that stands before it",
    "duplicate": "equal to a kept trace, ids and numbers aside",
    "near_duplicate": "nearly equal to a kept trace",
    "ranked_out": "better traces of the same problem were taken",
    "sampled_out": "not drawn for a corpus of this size",
}


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """Why a trace is not in the corpus: every per-trace rule it breaks (sorted), or the one set-level rule."""

    trace_id: str
    place: str
    codes: tuple[RejectCode, ...]


NEVER_OFF: frozenset[RejectCode] = frozenset({"pool", "leak"})
_Size = Annotated[int, msgspec.Meta(ge=1)]


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One filter as data; its hash is in the lineage. Every gate can be switched off for an ablation."""

    coefficient_e4_min: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = COEFFICIENT_E4_MIN
    tokens_max: _Size = TOKENS_MAX
    pool: CorpusPool = "train"  # or `dev`: for learning rates and guards, never learnt
    per_problem_max: _Size = 2
    near_duplicate_e4: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 7_000  # Jaccard of normalised traces
    off: tuple[RejectCode, ...] = ()
    seed: int = 0
    rows: _Size | None = None  # size-matched ablations: take this many, seeded
    tokens: _Size | None = None  # take rows, in the same order, while they have no more together
    is_success_needed: bool = False  # the filter's own rules do not ask for the outcome

    def __post_init__(self) -> None:
        if found := NEVER_OFF.intersection(self.off):  # no ablation is worth a leak
            raise ValueError(f"{' and '.join(sorted(found))} cannot be switched off")


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """A.3's structural signals of one trace. `shape` is the tuple of tool names in order."""

    depth: int  # think blocks and tool calls
    reformulations: int  # distinct search queries
    has_verification: bool
    longest_repeat: int  # identical calls in a row
    shape: tuple[str, ...]


class Fingerprint(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a trace to find its duplicates. Bytes are little-endian 32-bit MinHash values."""

    normal_sha: bytes
    phrases: bytes
    searched: bytes


class Appraisal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One trace, read. `codes` are all per-trace codes but `coefficient`, `failed` and `tokens`, which depend on the
    rules."""

    shard: int
    ordinal: int  # within the shard, from 0
    trace_id: str
    place: str
    codes: tuple[RejectCode, ...]
    coefficient_e4: int | None
    tokens: int | None
    problem: str  # its id, or a hash of the query where the source has none
    bucket: str
    day: str
    agent: str
    team: str
    signals: Signals
    turns: int
    fingerprint: Fingerprint | None  # of a trace that some arm lets pass
    is_unjudged: bool = False  # its source has no judge: the coefficient is not asked of it
    is_success: bool | None = None


class CorpusRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the corpus. `rank` counts from 1 within its problem."""

    trace: Trace
    signals: Signals
    tokens: int | None
    rank: int


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """What a corpus was made from and by; its hash is the corpus' identity."""

    rules: Rules
    sources: tuple[str, ...]  # sha256 of each manifest, or of each foreign file
    is_trusted_unsigned: bool
    tokenizer_sha256: str
    partition_sha256: str
    code_commit: str
    rows_sha256: str


NO_TOOLS = "[]"
EMITTERS, TOOLS, RESULTS = "emitters", "tools", "results"  # in `missing` beside names of facts
JUDGE = "judge"  # likewise: the source has no judge at all, which is another thing than a verdict that did not come

_ENCODER = msgspec.json.Encoder()


def assemble_trace(
    source: TraceSource,
    messages: Sequence[Message],
    *,
    tools: str = NO_TOOLS,
    query: str = "",
    facts: TraceFacts,
    missing: Iterable[str] = (),
    rebuilt: Rebuilt | None = None,
) -> Trace:
    """The trace of these parts. `missing`: what else the source does not have, beside facts that are None.
    `rebuilt`: of a conversation that is not verbatim.

    Raises ValueError for text that is not Unicode (half of a surrogate pair).
    """
    absent = {name for name in TraceFacts.__struct_fields__ if getattr(facts, name) is None}
    absent.update(missing)
    if any(call.emitter is None for message in messages for call in message.calls):
        absent.add(EMITTERS)
    if tools == NO_TOOLS:
        absent.add(TOOLS)
    return Trace(
        trace_id=trace_id_of(messages, tools),
        source=source,
        messages=tuple(messages),
        tools=tools,
        query=query,
        facts=facts,
        missing=tuple(sorted(absent)),
        rebuilt=rebuilt,
    )


def trace_id_of(messages: Iterable[Message], tools: str) -> str:
    """sha256 (hex) of conversation and tools. Raises ValueError for text that is not Unicode."""
    talk = [
        (
            one.role,
            one.content,
            one.reasoning,
            [(call.id, call.name, call.arguments) for call in one.calls],
            one.call_id,
        )
        for one in messages
    ]
    return hashlib.sha256(_ENCODER.encode((talk, tools))).hexdigest()


class UnreadCount(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that could not be converted, by the code of the failure. `example` is the place of the first, `detail` what
    is wrong with it."""

    code: str
    count: int
    example: str
    detail: str = ""
