"""Episodes that are restarted, with exact expected scores: the real gateway, journal, recorder and retry rules around
agents that are plain functions, and a model whose luck is a tape of draws.

`expected_score` explores every tape, so its result is a fraction and not a sample.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction

import msgspec

from arena.policy import RaceRules
from arena.race.decider import after_fault, is_last_attempt, is_nobodys_fault
from foundation.errors import ArenaError, Failure
from harness.inference.gateway import Gateway
from harness.inference.journal import MemoryJournal
from harness.inference.port import InferenceRules, ModelReply, Upstream
from harness.sandbox.port import EpisodeOver, GuestExit, GuestJob, Host, SandboxLevel
from harness.session import EpisodePorts, run_episode
from harness.trace import EvaluationBody
from tests.harness.episode_stand import IDS, SCHEMAS, StandToolbox, problem, rules
from tests.harness.refusing_stand import Refuses, RefusingUpstream

LUCK = Fraction(2, 5)  # how often a completion is a good one
STEPS = 3  # completions of an episode
NEEDED = 2  # good ones among them, to solve the problem
ATTEMPTS_MAX = 12  # of one play; an agent that is never finished has no score

Agent = Callable[[Host, int], None]  # the host, and which attempt this is, as an agent may tell by its clock


class TapeEnded(BaseException):
    """The model was asked for a draw that this tape does not have."""


class Tape:
    """The draws of a model, in the order in which they are made."""

    def __init__(self, draws: tuple[bool, ...]) -> None:
        self.draws, self.used = draws, 0

    def draw(self) -> bool:
        """The next one."""
        if self.used == len(self.draws):
            raise TapeEnded
        self.used += 1
        return self.draws[self.used - 1]


class Lucky:
    """A model that says `good` or `bad`, as the tape has it. It answers whatever asks neutrally."""

    def __init__(self, tape: Tape, name: str = "lucky") -> None:
        self.name, self._tape = name, tape

    def complete(self, request: str) -> ModelReply:
        word = "good" if self._tape.draw() else "bad"
        message = json.dumps({"role": "assistant", "content": word})
        return ModelReply(model="stand", content=word, prompt_tokens=9, completion_tokens=1, message=message)

    def probe(self, request: str) -> None:
        return None


class Outages:
    """`inner`, but the requests of these numbers, counted from 0, meet an outage in which nothing answers."""

    name = "outages"

    def __init__(self, inner: Upstream, numbers: frozenset[int]) -> None:
        self._inner, self._numbers, self._asked = inner, numbers, -1

    def complete(self, request: str) -> ModelReply:
        self._asked += 1
        if self._asked in self._numbers:
            raise ArenaError("U3002", "away")
        return self._inner.complete(request)

    def probe(self, request: str) -> Failure | None:
        return Failure(code="U3002") if self._asked in self._numbers else None


class CallingSandbox:
    """Runs an agent that is a function. It holds nobody back: for these agents alone."""

    level = SandboxLevel(
        name="reference-agents-only", layers=(), guest_sha256="", python_version="3.11", may_race=False
    )

    def __init__(self, agent: Agent, attempt: int) -> None:
        self._agent, self._attempt = agent, attempt

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        try:
            self._agent(host, self._attempt)
        except EpisodeOver:
            return GuestExit(end="stopped")
        return GuestExit(end="final", claim="null")


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Under what a play happens. `refuses`: what all endpoints refuse with `code`."""

    endpoints: int = 1
    refuses: Refuses | None = None
    code: str = "U3001"
    outages: frozenset[int] = frozenset()
    rules: RaceRules = RaceRules(refused_attempts=3)
    steps: int = 4  # of an episode, at most
    is_kept: bool = True  # False: every restart begins with nothing, as the control


def ask(host: Host, text: str, **options: object) -> str:
    """One completion."""
    params: dict[str, object] = {"messages": [{"role": "user", "content": text}], **options}
    reply = host.call("llm.chat", params)
    assert isinstance(reply, dict)
    return str(reply["content"])


def finish(host: Host, is_solved: bool) -> None:
    """Recommend what solves the problem, or what does not, and end."""
    host.call("tool.call", {"name": "find_product", "arguments": {"q": "red lamp"}})
    host.call("tool.call", {"name": "recommend_product", "arguments": {"product_ids": IDS[0 if is_solved else 1]}})
    host.call("tool.call", {"name": "terminate", "arguments": {}})


def play(
    agent: Agent, tape: Tape, terms: Terms, open_journal: Callable[[], MemoryJournal] | None = None
) -> tuple[EvaluationBody | None, int]:
    """The body that an episode and its restarts end with, and how many attempts there were; None: it never ends.

    `open_journal` opens the one journal of this play anew; without it the journal is in memory.
    """
    upstreams: list[Upstream] = []
    for number in range(terms.endpoints):
        upstream: Upstream = Outages(Lucky(tape, f"lucky-{number}"), terms.outages)
        upstreams.append(RefusingUpstream(upstream, terms.refuses, terms.code) if terms.refuses else upstream)
    kept, faults, counted, refused = MemoryJournal(), 0, 0, 0
    for attempt in range(ATTEMPTS_MAX):
        kept.next_attempt()
        journal = open_journal() if open_journal else kept if terms.is_kept else MemoryJournal()
        try:
            is_last = is_last_attempt(refused, terms.rules)
            return _attempt(agent, attempt, upstreams, journal, steps=terms.steps, is_last=is_last), attempt + 1
        except ArenaError as error:
            retry = after_fault(error.failure, "qualifying", faults=faults, counted=counted, rules=terms.rules)
            assert retry is not None
            if is_nobodys_fault(error.failure):
                journal.forgive()
            faults, counted, refused = faults + 1, counted + retry.is_counted, refused + retry.is_refused
    return None, ATTEMPTS_MAX


def _attempt(
    agent: Agent, attempt: int, upstreams: list[Upstream], journal: MemoryJournal, *, steps: int, is_last: bool
) -> EvaluationBody:
    gateway = Gateway(
        InferenceRules(models=("stand", "absent"), attempts=1),
        upstreams,
        SCHEMAS,
        rules(steps=steps).limits,
        sleep=lambda _: None,
        journal=journal,
        is_last=is_last,
    )
    ports = EpisodePorts(
        toolbox=StandToolbox(), gateway=gateway, sandbox=CallingSandbox(agent, attempt), journal=journal
    )
    return run_episode("", problem(), ports, rules(steps=steps)).body


def is_solved(body: EvaluationBody | None) -> bool:
    """Whether a play earned its score."""
    return body is not None and body.failure is None and body.recommended == (IDS[0],)


def expected_score(agent: Agent, terms: Terms, draws: tuple[bool, ...] = ()) -> Fraction:
    """The exact chance that the problem is solved, over every tape."""
    try:
        body, _ = play(agent, Tape(draws), terms)
    except TapeEnded:
        lucky, unlucky = (expected_score(agent, terms, (*draws, draw)) for draw in (True, False))
        return LUCK * lucky + (1 - LUCK) * unlucky
    return Fraction(is_solved(body))
