"""The day that other tests are made of is what it says it is."""

from __future__ import annotations

from pathlib import Path

import msgspec

from arena.chain.keys import verify
from arena.export.conversation import converse
from arena.export.verify.verification import verify_export
from tests.training.firehose import SIZES, TRUTH, Episode, Firehose, trajectory_of


def test_every_record_is_distinct_and_of_the_size_asked_for(firehose: Firehose) -> None:
    made = list(firehose.make(60))
    assert len({one.evaluation.body_sha256 for one in made}) == 60
    assert all(SIZES[0] - 1_000 <= len(one.body) <= SIZES[1] for one in made)


def test_equal_seeds_make_equal_records(firehose: Firehose, episodes: list[Episode]) -> None:
    assert [one.body for one in firehose.make(5)] == [one.body for one in Firehose(episodes).make(5)]


def test_a_made_record_keeps_what_its_agent_is(firehose: Firehose) -> None:
    for made in firehose.make(60):
        body, talk = trajectory_of(made).body, converse(trajectory_of(made).body)
        assert body.is_agentic == (TRUTH[made.agent] == "agentic")
        assert made.agent == "subtask" or talk.is_linear == (made.agent not in ("pruner", "echoer"))
        assert talk.is_model_written == (TRUTH[made.agent] == "agentic")


def test_a_made_record_quotes_and_surfaces_what_it_says(firehose: Firehose) -> None:
    for made in firehose.make(20):
        text = msgspec.json.encode(msgspec.json.decode(made.body)).decode()
        for slot in made.evaluation.outcome.slots:
            assert not slot.recommended_id or slot.recommended_id in text


def test_the_real_episodes_come_out_unchanged(firehose: Firehose, episodes: list[Episode]) -> None:
    bodies = {one.evaluation.body.body_hash() for one in episodes}
    assert {one.evaluation.body_sha256 for one in firehose.as_recorded()} <= bodies


def test_the_day_verifies(day: Path) -> None:
    assert verify_export(day, verify).wrong == ()
