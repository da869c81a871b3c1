"""What Trac's later stages pass on: annotations, tasklets, trials, and what became of each trace.

Values only. Shares are ten-thousandths, prices millionths of a dollar. Source: paper, A.1.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from foundation.codes.row import Owner

Dimension = Literal["intent", "search", "observation", "justification", "supervisor"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)

Fate = Literal[
    "not_admitted",  # freeze: its outcome was no success, or none was recorded
    "not_annotated",  # an annotator gave no annotation whose citations are in the trace
    "not_accepted",  # the supervisor's train_use_decision is no
    "no_tasklet",  # the trace recommends nothing, or the author gave no tasklet that can be read
    "not_grounded",  # a target cannot be found by words that are in the tasklet's prompt
    "trivial",  # the student solves it by itself
    "no_margin",  # the teacher is not better than the student by more than luck
    "not_answered",  # the endpoint failed at a question or a trial: nothing is known; the next run asks again
    "not_reached",  # the run's limit of cost or time came first; the next run goes on
    "accepted",
]
FATES: tuple[Fate, ...] = get_args(Fate)  # in the order of the stages


class OracleRules(msgspec.Struct, frozen=True, kw_only=True):
    """How strict the oracle is. `chance_e4`: how often two equal models may seem to differ by the margin."""

    admits_failed: bool = False  # the paper's ORO_ALLOW_FAILED_TRACES
    replies_max: int = 2  # to one annotator or the author, the refused ones included
    reply_tokens_max: int = 1_024
    search_pages: int = 2  # that a target has to stand on, ten products each
    trials: int = 4  # of each model at one tasklet
    temperature_e4: int = 7_000  # of trials
    chance_e4: int = 500
    student_max_e4: int = 5_000  # a student that solves more of its trials finds the tasklet trivial

    def __post_init__(self) -> None:
        if min(self.replies_max, self.reply_tokens_max, self.search_pages, self.trials) < 1:
            raise ValueError("replies, tokens, pages and trials are at least 1")
        if not 0 < self.chance_e4 < 10_000 or not 0 <= self.student_max_e4 <= 10_000:
            raise ValueError("a share lies between 0 and 10,000")


class Roles(msgspec.Struct, frozen=True, kw_only=True):
    """Which model does what."""

    annotator: str
    author: str
    teacher: str
    student: str


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What a model costs, in millionths of a dollar for a million tokens: $3.00 is 3,000,000."""

    prompt_micro_usd: int = 0
    completion_micro_usd: int = 0

    def micro_usd(self, prompt_tokens: int, completion_tokens: int) -> int:
        """The price of so many tokens, rounded up."""
        total = prompt_tokens * self.prompt_micro_usd + completion_tokens * self.completion_micro_usd
        return -(-total // 1_000_000)


class SpanQuote(msgspec.Struct, frozen=True, kw_only=True):
    """A passage of the trace, verbatim, and the span it is in."""

    span: int
    quote: str


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """What one annotator says. `train_use_decision` is the supervisor's alone."""

    dimension: Dimension
    score_e4: int
    citations: tuple[SpanQuote, ...]
    explanation: str
    train_use_decision: bool | None = None


class Tasklet(msgspec.Struct, frozen=True, kw_only=True):
    """A task of its own: what is asked, the words that find each target, and the products that answer it."""

    prompt: str
    search_terms: tuple[str, ...]
    target_ids: tuple[str, ...]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a model at a tasklet."""

    is_solved: bool
    prompt_tokens: int
    completion_tokens: int


class TrialVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one trace, with everything that led to it. Successes are None where no trial was run.

    `code` names the failure that stopped it, "" for a decision on its merits.
    """

    trace_id: str
    place: str
    fate: Fate
    code: str = ""
    detail: str = ""
    annotations: tuple[Annotation, ...] = ()
    tasklet: Tasklet | None = None
    student_successes: int | None = None
    teacher_successes: int | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a model was asked for: `kept` calls were answered by what is stored, and cost nothing."""

    model: str
    calls: int = 0
    kept: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    micro_usd: int = 0


class FaultCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many traces a failure stopped, and whose it is."""

    code: str
    owner: Owner
    traces: int


class OracleReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run: how many traces met which fate, in the order of the stages, and what was paid.

    `faults` count the traces that a failure stopped, by code: of the endpoint, its model, or the run's limits.
    """

    rules: OracleRules
    roles: Roles
    margin: int  # trials by which a teacher has to be better
    traces: int
    fates: tuple[tuple[Fate, int], ...]
    faults: tuple[FaultCount, ...]
    usage: tuple[Usage, ...]

    @property
    def micro_usd(self) -> int:
        """What this run cost."""
        return sum(one.micro_usd for one in self.usage)
