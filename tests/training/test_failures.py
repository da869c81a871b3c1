"""Why an episode failed: one reason, the first thing that went wrong."""

from __future__ import annotations

import json

import msgspec
import pytest

from harness.chat import Call, Message
from problems.model import Problem, RewardItem
from tests.training.rollouts import make_rollout
from training.evaluation.failures import Reason, count_reasons, reason_of
from training.rollouts.episode_file import EpisodeLine

PROBLEM = Problem(problem_id="p", bucket="product", query="?", rewards=(RewardItem(product_id="ba12", title=("Bag",)),))
FOUND = '[{"product_id":"ba12","price":3.0},{"product_id":"ko03","price":2.0}]'
OTHER = '[{"product_id":"ko03","price":2.0}]'


def episode(*calls: tuple[str, dict[str, str], str], reward: float | None = 0.0) -> EpisodeLine:
    """Calls with what each is answered."""
    messages: list[Message] = [Message(role="user", content="?")]
    for number, (name, arguments, answer) in enumerate(calls):
        call = Call(id=str(number), name=name, arguments=json.dumps(arguments))
        messages += [
            Message(role="assistant", calls=(call,)),
            Message(role="tool", content=answer, call_id=str(number)),
        ]
    rollout = make_rollout([(name, json.dumps(arguments)) for name, arguments, _ in calls] or [None], reward=reward)
    return EpisodeLine(result=rollout.result, query="?", messages=tuple(messages), tools="[]", rollout=rollout)


def search(answer: str = FOUND) -> tuple[str, dict[str, str], str]:
    return "find_product", {"q": "bag"}, answer


def take(ids: str) -> tuple[str, dict[str, str], str]:
    return "recommend_product", {"product_ids": ids}, "ok"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (episode(search(), take("ba12"), reward=1.0), "solved"),
        (episode(search(), take("ba12"), reward=None), "unscored"),
        (episode(), "no search"),
        (episode(search()), "no recommendation"),
        (episode(search(), take("ko03")), "wrong hit"),
        (episode(search(), take("ba12,ko03")), "wrong count"),
        (episode(search(OTHER), take("ko03")), "gold not found"),
        (episode(search(OTHER), take("ba12")), "invented id"),
        (episode(search(), take("ko03"), take("ba12,ko03")), "wrong count"),  # the last recommendation counts
    ],
)
def test_the_first_thing_that_went_wrong_is_the_reason(line: EpisodeLine, reason: Reason) -> None:
    assert reason_of(line, PROBLEM, 100) == reason


def test_a_turn_at_its_bound_and_a_full_context_come_before_what_follows_from_them() -> None:
    line = episode(search(), take("ko03"))
    assert reason_of(line, PROBLEM, 2) == "cut turn"  # its turns have two tokens
    full = msgspec.structs.replace(line, result=msgspec.structs.replace(line.result, is_overflow=True))
    assert reason_of(full, PROBLEM, 100) == "full context"


def test_every_episode_is_counted_once_and_those_of_other_problems_not() -> None:
    lines = [episode(), episode(search()), episode(search(), take("ba12"), reward=1.0)]
    assert count_reasons(lines, {"p": PROBLEM}, 100) == {
        "product": {"no recommendation": 1, "no search": 1, "solved": 1}
    }
    assert count_reasons(lines, {}, 100) == {}
