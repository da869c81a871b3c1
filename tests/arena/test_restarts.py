"""Nobody gains by a restart: exact expected scores of agents that provoke faults, and of honest ones in outages."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from harness.inference.journal import FileJournal
from harness.sandbox.port import GuestCallError, Host
from harness.trace import Completion
from tests.arena.restart_stand import NEEDED, STEPS, Agent, Tape, Terms, ask, expected_score, finish, is_solved, play
from tests.harness.refusing_stand import Refuses, longer_than, words

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


HOWS: dict[str, tuple[Refuses, str]] = {
    "moderation": (words(BOMB), "U3001"),
    "rate": (words(BOMB), "U3004"),
    "malformed": (words(BOMB), "A1040"),
    "long": (longer_than(1_000), "U3004"),
    "model": (lambda body: body["model"] == "absent", "U3001"),
}
RESTARTS = ["repeated", "varied", "reordered", "shortened", "provoked first"]


@pytest.mark.parametrize("endpoints", [1, 2])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("restart", RESTARTS)
def test_no_gambler_expects_more_than_an_agent_that_provokes_nothing(how: str, restart: str, endpoints: int) -> None:
    refuses, code = HOWS[how]
    terms = Terms(refuses=refuses, code=code, endpoints=endpoints)
    for patience in (1, 2, 9):
        for is_early in (True, False):
            expected = expected_score(gambler(how, restart, patience, is_early=is_early), terms)
            assert expected <= HONEST, (patience, is_early)


def test_without_the_journal_the_same_gamblers_gain_so_the_bound_above_can_fail() -> None:
    refuses, code = HOWS["moderation"]
    gained = expected_score(
        gambler("moderation", "repeated", 2, is_early=False), Terms(refuses=refuses, code=code, is_kept=False)
    )
    assert gained == 1 - (1 - HONEST) ** 3 > HONEST


def test_a_gambler_that_repeats_itself_and_stops_provoking_has_the_honest_score_and_no_more() -> None:
    refuses, code = HOWS["moderation"]
    expected = expected_score(gambler("moderation", "repeated", 1, is_early=False), Terms(refuses=refuses, code=code))
    assert expected == HONEST


@pytest.mark.parametrize("agent", [honest, restless])
@pytest.mark.parametrize("outages", [(), (0,), (1,), (2,), (0, 1), (1, 2), (2, 3), (2, 4), (0, 2, 4)])
def test_honest_agents_keep_their_expected_score_in_real_outages(agent: Agent, outages: tuple[int, ...]) -> None:
    assert expected_score(agent, Terms(outages=frozenset(outages))) == HONEST


def test_the_end_of_the_cap_is_a_score_of_zero_with_a_reason_of_its_own() -> None:
    refuses, code = HOWS["moderation"]
    body, attempts = play(
        gambler("moderation", "repeated", 9, is_early=False), Tape((False,) * STEPS), Terms(refuses=refuses, code=code)
    )
    assert body is not None and body.failure is not None
    assert (body.stop, body.failure.code, attempts) == ("model_refused", "A1043", 3)


def test_a_restart_that_leaves_out_a_completion_ends_as_the_agents() -> None:
    refuses, code = HOWS["moderation"]
    varied = gambler("moderation", "varied", 1, is_early=False)
    body, _ = play(varied, Tape((False,) * STEPS + (True,) * STEPS), Terms(refuses=refuses, code=code))
    assert body is not None and body.failure is not None
    assert (body.stop, body.failure.code, is_solved(body)) == ("diverged", "A1044", False)


def test_a_fault_that_any_shape_may_choose_uses_up_no_attempt_and_never_becomes_a_score() -> None:
    refuses, code = HOWS["long"]
    body, attempts = play(
        gambler("long", "repeated", 99, is_early=False), Tape((False,) * STEPS), Terms(refuses=refuses, code=code)
    )
    assert (body, attempts) == (None, 12)


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

    refuses, code = HOWS["long"]
    body, attempts = play(hungry, Tape((True,) * 100), Terms(refuses=refuses, code=code, steps=25))
    assert body is not None and body.stop == "diverged"
    assert (asked, attempts) == (25, 5)


def test_agents_with_threads_may_ask_in_another_order() -> None:
    def threaded(host: Host, attempt: int) -> None:
        order = range(STEPS) if attempt == 0 else reversed(range(STEPS))
        said = [ask(host, f"step {step}") for step in order]
        if attempt == 0:
            provoke(host, "moderation")
        finish(host, said.count("good") >= NEEDED)

    refuses, code = HOWS["moderation"]
    assert expected_score(threaded, Terms(refuses=refuses, code=code)) == HONEST
