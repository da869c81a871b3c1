"""Nobody gains by a restart: exact expected scores of agents that provoke faults, and of honest ones in outages."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from arena.policy import RaceRules
from arena.race.decider import after_fault, is_last_attempt, is_nobodys_fault
from foundation.errors import ArenaError, Failure
from harness.inference.gateway import Gateway
from harness.inference.journal import FileJournal, MemoryJournal
from harness.inference.port import InferenceRules, ModelReply, Upstream
from harness.sandbox.port import EpisodeOver, GuestCallError, GuestExit, GuestJob, Host, SandboxLevel
from harness.session import EpisodePorts, run_episode
from harness.trace import Completion, EvaluationBody
from tests.harness.episode_stand import IDS, SCHEMAS, StandToolbox, problem, rules
from tests.harness.refusing_stand import Refuses, RefusingUpstream, longer_than, words

# -- the real gateway, journal, recorder and retry rules around agents that are plain functions, and a model whose luck
# is a tape of draws; `expected_score` explores every tape, so its result is a fraction and not a sample
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


# -- what a restart brings
BOMB = "a bomb"
LONG = "word " * 400
HONEST = Fraction(44, 125)  # two good completions of three, at two in five


def honest(host: Host, _: int) -> None:
    said = [ask(host, f"step {step}") for step in range(STEPS)]
    finish(host, said.count("good") >= NEEDED)


def restless(host: Host, attempt: int) -> None:
    """Honest, with requests that no two attempts have alike."""
    said = [ask(host, f"attempt {attempt} step {step}") for step in range(STEPS)]
    finish(host, said.count("good") >= NEEDED)


def provoke(host: Host, how: str) -> None:
    """End the attempt by a fault, or go on where the call merely fails."""
    try:
        ask(host, LONG if how == "long" else BOMB, **({"model": "absent"} if how == "model" else {}))
    except GuestCallError:
        return


def gambler(how: str, restart: str, patience: int, *, is_early: bool) -> Agent:
    """Provokes a fault in the first `patience` attempts that go badly: at the first bad completion, or at the end."""

    def run(host: Host, attempt: int) -> None:
        mark = f"attempt {attempt} " if restart == "varied" else ""
        steps = list(range(STEPS))
        if restart == "reordered" and attempt % 2:
            steps.reverse()
        if restart == "shortened":
            steps = steps[attempt:] + steps[:attempt] + [9 + attempt]
        if restart == "provoked first" and attempt == 1:
            provoke(host, how)
        said = []
        for step in steps:
            said.append(ask(host, f"{mark}step {step}"))
            if is_early and said[-1] == "bad" and attempt < patience:
                provoke(host, how)
        if said.count("good") < NEEDED and attempt < patience:
            provoke(host, how)
        finish(host, said[:STEPS].count("good") >= NEEDED)

    return run


HOWS = {
    "moderation": Terms(refuses=words(BOMB), code="U3001"),
    "rate": Terms(refuses=words(BOMB), code="U3004"),
    "malformed": Terms(refuses=words(BOMB), code="A1040"),
    "long": Terms(refuses=longer_than(1_000), code="U3004"),
    "model": Terms(refuses=lambda body: body["model"] == "absent", code="U3001"),
}
RESTARTS = ["repeated", "varied", "reordered", "shortened", "provoked first"]


@pytest.mark.parametrize("endpoints", [1, 2])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("restart", RESTARTS)
def test_no_gambler_expects_more_than_an_agent_that_provokes_nothing(how: str, restart: str, endpoints: int) -> None:
    terms = replace(HOWS[how], endpoints=endpoints)
    for patience in (1, 2, 9):
        for is_early in (True, False):
            expected = expected_score(gambler(how, restart, patience, is_early=is_early), terms)
            assert expected <= HONEST, (patience, is_early)


def test_without_the_journal_the_same_gamblers_gain_and_one_that_stops_provoking_has_the_honest_score() -> None:
    gains, stops = (gambler("moderation", "repeated", patience, is_early=False) for patience in (2, 1))
    assert expected_score(gains, replace(HOWS["moderation"], is_kept=False)) == 1 - (1 - HONEST) ** 3 > HONEST
    assert expected_score(stops, HOWS["moderation"]) == HONEST


@pytest.mark.parametrize("agent", [honest, restless])
@pytest.mark.parametrize("outages", [(), (0,), (1,), (2,), (0, 1), (1, 2), (2, 3), (2, 4), (0, 2, 4)])
def test_honest_agents_keep_their_expected_score_in_real_outages(agent: Agent, outages: tuple[int, ...]) -> None:
    assert expected_score(agent, Terms(outages=frozenset(outages))) == HONEST


def test_the_end_of_the_cap_is_a_score_of_zero_with_a_reason_of_its_own() -> None:
    agent = gambler("moderation", "repeated", 9, is_early=False)
    body, attempts = play(agent, Tape((False,) * STEPS), HOWS["moderation"])
    assert (body.stop, body.failure.code, attempts) == ("model_refused", "A1043", 3)


def test_a_restart_that_leaves_out_a_completion_ends_as_the_agents() -> None:
    varied = gambler("moderation", "varied", 1, is_early=False)
    body, _ = play(varied, Tape((False,) * STEPS + (True,) * STEPS), HOWS["moderation"])
    assert (body.stop, body.failure.code, is_solved(body)) == ("diverged", "A1044", False)


def test_a_fault_that_any_shape_may_choose_uses_up_no_attempt_and_never_becomes_a_score() -> None:
    agent = gambler("long", "repeated", 99, is_early=False)
    assert play(agent, Tape((False,) * STEPS), HOWS["long"]) == (None, 12)


@pytest.mark.parametrize("keeps", ["memory", "file"])
@pytest.mark.parametrize("outages", [(1,), (2,), (1, 2, 3), (0, 2, 3)])
def test_a_restarted_episode_has_the_body_of_one_that_never_was(
    keeps: str, outages: tuple[int, ...], tmp_path: Path
) -> None:
    tape = (True, False, True)
    whole, attempts = play(honest, Tape(tape), Terms())
    assert whole is not None and attempts == 1
    again = Tape(tape)
    opened = (lambda: FileJournal(tmp_path / "j" / "one.journal")) if keeps == "file" else None
    restarted, attempts = play(honest, again, Terms(outages=frozenset(outages)), opened)
    assert restarted is not None and attempts == 1 + len(outages) and again.used == STEPS
    assert restarted.body_hash() == whole.body_hash()
    assert [event.step for event in restarted.events if isinstance(event, Completion)] == [1, 2, 3]


def test_restarts_of_a_diverging_agent_draw_no_more_completions_than_one_episode_has() -> None:
    """With a fault that uses up no attempt: what a strict restart may still ask anew is bounded by the steps."""
    asked = 0

    def hungry(host: Host, attempt: int) -> None:
        nonlocal asked
        for number in range(5):
            ask(host, f"attempt {attempt} number {number}")
            asked += 1
        provoke(host, "long")

    body, attempts = play(hungry, Tape((True,) * 100), replace(HOWS["long"], steps=25))
    assert body is not None and body.stop == "diverged"
    assert (asked, attempts) == (25, 5)


def test_agents_with_threads_may_ask_in_another_order() -> None:
    def threaded(host: Host, attempt: int) -> None:
        order = range(STEPS) if attempt == 0 else reversed(range(STEPS))
        said = [ask(host, f"step {step}") for step in order]
        if attempt == 0:
            provoke(host, "moderation")
        finish(host, said.count("good") >= NEEDED)

    assert expected_score(threaded, HOWS["moderation"]) == HONEST
