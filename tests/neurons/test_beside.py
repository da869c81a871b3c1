"""A validator's races beside SN15's: what `arena validator report` makes of its published client's answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.race.forecast import Cost
from arena.records.model import SettlementRecord
from arena.records.port import UsageTotal
from foundation.errors import ArenaError
from neurons.cli.validator import beside_lines
from neurons.race.beside import BLOCKS_PER_DAY, compare, read_other
from tests.arena.log_stand import settlement

ANSWERS = Path(__file__).with_name("sn15_answers.jsonl")  # models of oro-sdk 7.0.2, four races of one field and a pay
OTHER = read_other(ANSWERS.read_bytes().splitlines(), "answers")
NAMES = {"a": "alpha", "b": "beta", "c": "own"}
HOTKEYS = {"a": "5AlphaMiner", "b": "5BetaElsewhere", "c": "5OwnMiner"}


def race(day: int, **scores_e4: int) -> SettlementRecord:
    """A race of ours on that day, the best first."""
    (row,) = settlement().standings
    rows = tuple(
        replace(row, rank=rank, agent_version_id=name, miner_hotkey=HOTKEYS[name], race_score_e4=score, missing=1)
        for rank, (name, score) in enumerate(scores_e4.items(), start=1)
    )
    made = replace(settlement(f"race-{day}"), closing_block=day * BLOCKS_PER_DAY, standings=rows, void=("p1",))
    return replace(made, top_agent_version_id=rows[0].agent_version_id if rows else "")


def usage(day: int, race_id: str, version: str, tokens: int, cost: int | None, at: str = "m") -> UsageTotal:
    """What one episode on that day of November took."""
    about = {"day": f"2026-11-{day:02}", "stage": "race" if race_id else "qualifying", "episodes": 1, "requests": 1}
    about |= {"race_id": race_id, "agent_version_id": version, "upstream": at, "model": "m"}
    return UsageTotal(prompt_tokens=tokens, cost_micro_usd=cost, **about)


LEDGER = [
    usage(3, "race-1", "c", 9_000, 9),
    usage(6, "", "a", 100, 10),  # qualifying on the first day of the week
    usage(9, "race-9", "a", 1_000, 2_000_000),
    usage(9, "race-9", "a", 50, 30_000, "judge/m"),
    usage(12, "race-12", "b", 700, None),
    usage(12, "race-12", "control", 5, 40, "judge/m"),
    usage(13, "", "a", 100, 10),
]


def test_a_week_of_both_sides_stands_agent_by_agent() -> None:
    ours = [race(1, c=9_000), race(9, a=8_000, b=6_000), race(12, b=7_000, a=6_000), race(13)]
    found = compare(ours, NAMES, OTHER, 7, LEDGER)
    assert found.races == (("race-9", "race-12"), ("41", "42"))  # on neither side what is older than a week
    assert found.without_scores == (1, 1)
    assert (found.void, found.missing, found.faulted) == (2, 4, 0)
    agents = {one.name: one for one in found.agents}
    assert set(agents) == {"alpha", "beta", "gamma", "delta"}  # ours is older, and beta is one agent by its name
    alpha, beta, gamma = agents["alpha"], agents["beta"], agents["gamma"]
    scores = [side.score_e4 for one in (alpha, beta) for side in (one.here, one.there)]
    assert scores == [7_000, 7_050, 6_500, 7_300]
    assert (alpha.there.races, alpha.there.rank, gamma.here) == (2, 1.5, None)
    assert found.same_order == (0, 1)
    assert abs(alpha.there.share_e4 - 1_250) <= 1 and abs(sum(found.burned_e4) - 15_000) <= 4
    assert alpha.there.tao_per_day == pytest.approx(6.25, abs=0.01)
    lines = "\n".join(beside_lines(found))
    assert "\nalpha  5AlphaMi  0.700  0.705   1.5    1.5    12.5%  12.5%" in lines
    assert alpha.here.costs == (
        Cost(prompt_tokens=1_100, micro_usd=2_000_010),
        Cost(prompt_tokens=50, micro_usd=30_000),
    )
    assert (alpha.there.costs, beta.here.costs[0].micro_usd, found.costs[1].micro_usd) == (None, None, 30_040)
    assert "costs in tokens and USD, there: not published; here: 2026-11-06 to 2026-11-12 (UTC)\n" in lines
    assert "\nalpha  5AlphaMi            1,100        $2.0000       50  $0.0300" in lines
    assert "here: no race asked a model" in "\n".join(beside_lines(compare(ours, NAMES, OTHER, 7)))


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"race":{"race_id":"x"}}', b'{"race":{"race_id":1}}', b"\xff"])
def test_an_answer_that_is_none_is_named_with_its_line(line: bytes) -> None:
    with pytest.raises(ArenaError, match="answers, line 2"):
        read_other([ANSWERS.read_bytes().splitlines()[0], line], "answers")
