"""What a validator's log tells people: names beside hashes, who is paid and why, and what stands on the banner."""

from __future__ import annotations

from msgspec.structs import replace

from arena.records.port import WeightsResult
from neurons.race.sentences import top_sentence, weights_sentence
from neurons.settings import observe
from tests.arena.log_stand import settlement

SETTLED = settlement()
NAMES = {row.agent_version_id: f"agent{row.rank}" for row in SETTLED.standings}


def test_who_stays_at_the_top_is_named_with_the_reason() -> None:
    other = replace(SETTLED, top_agent_version_id="f" * 64, is_promotion=False)
    assert top_sentence(other, {**NAMES, "f" * 64: "champion"}).startswith("champion stays at the top: agent1 did not")


def test_weights_name_who_is_paid_and_a_rate_limit_says_that_nothing_is_to_do() -> None:
    row = WeightsResult(race_id="race-000001", block=18, uids=(0, 2), weights_u16=(65_535, 21_845), status="ok")
    said = weights_sentence(row, {2: "5FBhYxDBoQ2uM9x8E75w"}, {"5FBhYxDBoQ2uM9x8E75w": "expert"})
    assert said == "Weights of race-000001 are set in block 18: burn 75.0%, expert 5FBh…75w 25.0%"
    waiting = weights_sentence(replace(row, status="rate_limited", detail="29 blocks left"), {}, {})
    assert waiting == "Weights of race-000001 wait for the chain's rate limit; retried by itself. (29 blocks left)"


def test_a_terminal_shows_an_events_sentence_and_nothing_else_of_it() -> None:
    render = observe._for_people(lambda *given: "fields")  # type: ignore[arg-type]
    stamp = "2026-11-23T09:28:39.6Z"
    assert render(None, "info", {"event": "race", "timestamp": stamp, "text": "it is settled"}) == (
        "09:28:39 UTC  it is settled"
    )
    assert render(None, "info", {"event": "race", "timestamp": stamp}) == "fields"
