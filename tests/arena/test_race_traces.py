"""One state machine drives races with one validator and with many: what it asks for is held, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.race.events import decode_event, encode_event
from arena.race.machine import replay
from tests.arena.race_traces import digest_of, trace_alone, trace_shared

GOLDEN = Path(__file__).parent / "golden" / "race_traces.json"
STREAMS = GOLDEN.with_name("race_streams.json")


def traces() -> Iterator[tuple[str, Iterator[str]]]:
    for seed in range(60):
        yield f"alone {seed}", trace_alone(seed, is_alone=True)
        yield f"sole {seed}", trace_alone(seed, is_alone=False)
        yield f"shared {seed}", trace_shared(seed)


@pytest.fixture(scope="module")
def kept() -> dict[str, str]:
    kept: dict[str, str] = json.loads(GOLDEN.read_text("utf-8"))
    return kept


def test_what_a_race_asks_for_is_what_earlier_releases_asked_for(kept):
    made = {name: digest_of(trace) for name, trace in traces()}
    assert {name for name in made if made[name] != kept[name]} == set() and made.keys() == kept.keys()


@pytest.mark.parametrize("kind", ["lone 0", "shared 0", "sole 0"])
def test_streams_that_an_earlier_release_stored_replay_and_keep_their_spelling(kind):
    ((race_id, texts),) = json.loads(STREAMS.read_text("utf-8"))[kind].items()
    assert [encode_event(decode_event(text)) for text in texts] == texts
    for count in range(1, len(texts) + 1):
        state = replay(race_id, texts[:count])
        assert state.events == count
    assert state.stage == "settled" and state.is_finished
    assert (state.proposed is None) == (kind != "shared 0")


def test_traces_reach_every_stage_and_every_kind_of_answer():
    said = [line for _, trace in traces() for line in trace]
    found = {word for line in said for word in line.split('"')[3:4]}
    assert found >= {
        "opened",
        "closed",
        "read",
        "committed",
        "field",
        "drawn",
        "enqueued",
        "settling",
        "proposed",
        "settled",
        "released",
        "fix_field",
        "fetch_beacon",
        "enqueue_items",
        "settle",
        "release_batch",
        "read_chain",
        "anchor_log",
        "commit",
        "pull_logs",
        "enqueue_stand_ins",
        "adopt",
    }
