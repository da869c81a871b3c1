"""Why episodes of a policy fail, one reason an episode: the first thing that went wrong, in the order of an episode.

A function of episodes and the problems they are of; gold products are read from the problem, so this is for
evaluation alone. Reasons exclude each other; `solved` and `unscored` make the counts whole.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import msgspec

from problems.model import Problem
from training.rollouts.episode_file import EpisodeLine

Reason = Literal[
    "solved",
    "unscored",  # a fault of ours
    "cut turn",  # a turn reached the decoding's bound
    "full context",
    "no search",  # no find_product that parses
    "no recommendation",  # it found something and stopped, or ran out of turns
    "gold not found",  # recommends, and a search showed not all that was asked for
    "invented id",
    "wrong count",
    "wrong hit",  # all gold was shown, and another hit was taken
]
REASONS: tuple[Reason, ...] = get_args(Reason)
MEANINGS: Mapping[str, str] = {
    "unscored": "a fault of the arena",
    "cut turn": "a turn reached the bound on its tokens",
    "full context": "the conversation outgrew the context",
    "no search": "no search that can be read",
    "no recommendation": "it searched, and stopped or ran out of turns",
    "gold not found": "it recommends, and its searches never showed all that was asked for",
    "invented id": "it recommends an id that no search showed",
    "wrong count": "all was shown, and it recommends too many or too few",
    "wrong hit": "all was shown, and it takes another hit",
}
_SHOWN = re.compile(r'"product_id":"([^"]+)"')


def reason_of(line: EpisodeLine, problem: Problem, turn_tokens_max: int) -> Reason:
    """What became of an episode on `problem`, whose turns had at most `turn_tokens_max` tokens."""
    result = line.result
    if result.is_success is None:
        return "unscored"
    if result.is_success:
        return "solved"
    if line.rollout is not None and any(turn.last - turn.first >= turn_tokens_max for turn in line.rollout.turns):
        return "cut turn"
    if result.is_overflow:
        return "full context"
    calls = [call for message in line.messages if message.role == "assistant" for call in message.calls]
    if not any(call.name == "find_product" for call in calls):
        return "no search"
    recommended = [_ids(call.arguments) for call in calls if call.name == "recommend_product"]
    if not recommended:
        return "no recommendation"
    shown = {one for message in line.messages if message.role == "tool" for one in _SHOWN.findall(message.content)}
    return _of_choice(recommended[-1], shown, [wanted.product_id for wanted in problem.rewards])


def count_reasons(
    lines: Iterable[EpisodeLine], problems: Mapping[str, Problem], turn_tokens_max: int
) -> dict[str, dict[str, int]]:
    """Episodes by bucket and reason; `problems` by id, episodes of others left out."""
    found: dict[str, Counter[str]] = {}
    for line in lines:
        problem = problems.get(line.result.problem_id)
        if problem is not None:
            found.setdefault(problem.bucket, Counter())[reason_of(line, problem, turn_tokens_max)] += 1
    return {bucket: dict(sorted(counts.items())) for bucket, counts in sorted(found.items())}


def _of_choice(taken: list[str], shown: set[str], gold: list[str]) -> Reason:
    if not set(taken) <= shown:
        return "invented id"
    if not set(gold) <= shown:
        return "gold not found"
    return "wrong count" if len(taken) != len(gold) else "wrong hit"


def _ids(arguments: str) -> list[str]:
    try:
        given = msgspec.json.decode(arguments, type=dict[str, object]).get("product_ids", "")
    except msgspec.DecodeError:
        return []
    return [one.strip() for one in str(given).split(",") if one.strip()]
