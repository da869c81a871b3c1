"""Teacher against student: is a tasklet worth training on? (paper, A.1)

A tasklet is accepted when the teacher solves more of its trials than the student by a margin that two equal
models reach by luck no more often than `chance_e4`, and the student does not find it trivial. The margin is exact, not
fitted. The student goes first: a tasklet that it solves, or that leaves the teacher no room, costs no teacher.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import msgspec

from training.trac.model import Fate, OracleRules, Tasklet

Attempt = Callable[[str, Tasklet, int], bool]  # model, tasklet, number of the trial from 0: whether it was solved


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """How a tasklet fared. `teacher` is None where the student alone decided."""

    fate: Fate
    student: int
    teacher: int | None


def calibrated_margin(trials: int, chance_e4: int) -> int:
    """The least number of solved trials by which a model has to be better.

    Two equal models of `trials` trials each differ by d or more in one direction most often when they solve half; then
    the chance is the sum over k >= d of C(2n, n + k) / 4^n. Above `trials` where no margin is rare enough: nothing can
    then be accepted, and more trials are needed.
    """
    outcomes, tail = 4**trials, 0
    for margin in range(trials, 0, -1):
        tail += comb(2 * trials, trials + margin)
        if tail * 10_000 > chance_e4 * outcomes:
            return margin + 1
    return 1


def verify(tasklet: Tasklet, student: str, teacher: str, rules: OracleRules, attempt: Attempt) -> Verified:
    """Run the trials that are needed. Raises what an attempt raises."""
    margin = calibrated_margin(rules.trials, rules.chance_e4)
    solved = 0
    for number in range(rules.trials):
        solved += attempt(student, tasklet, number)
        if solved * 10_000 > rules.student_max_e4 * rules.trials:
            return Verified(fate="trivial", student=solved, teacher=None)
    if solved + margin > rules.trials:
        return Verified(fate="no_margin", student=solved, teacher=None)
    taught = sum(attempt(teacher, tasklet, number) for number in range(rules.trials))
    fate: Fate = "accepted" if taught - solved >= margin else "no_margin"
    return Verified(fate=fate, student=solved, teacher=taught)
