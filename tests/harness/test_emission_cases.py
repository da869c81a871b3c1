"""The golden sets of emission, replayed one by one: stories of the first version, told by a generator and by hand, and
puppets and ordinary agents of those after it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.emission.attribution import EMISSION, FIRST_EMISSION, Emission
from harness.emission.call_reader import CallReader
from harness.tools.registry import profile_schemas
from harness.trace import EmittedCall
from tests.harness import emission_echo_generator, emission_generator

HERE = Path(__file__).parent
READER = CallReader(profile_schemas("sn15"))


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


SECOND = read(emission_echo_generator.CASES)
GENERATED, WRITTEN = read(emission_generator.CASES), read(HERE / "emission_written.jsonl")


def replay(case: dict, version: str = FIRST_EMISSION) -> tuple[list[str], list[str]]:
    """Emitters as told by the case, and as attributed by a version of the rule."""
    emission = Emission(READER, case.get("query", ""), version=version)
    told, attributed = [], []
    for turn in case["turns"]:
        if turn["messages"] is not None:
            native = tuple(
                EmittedCall(call_id=call["id"], name=call["name"], arguments=call["arguments"])
                for call in turn["calls"]
            )
            calls = READER.emitted(turn["content"], native)
            emission.complete([json.dumps(m) for m in turn["messages"]], calls, turn["content"])
        for name, arguments, emitter, *result in turn["dispatched"]:
            told.append(emitter)
            attributed.append(emission.attribute(name, arguments).emitter)
            emission.returned(name, arguments, "".join(result), attributed[-1])
    return told, attributed


@pytest.mark.parametrize("case", [*GENERATED, *WRITTEN], ids=lambda case: case["name"])
def test_every_call_of_the_golden_set_has_its_emitter(case):
    told, attributed = replay(case)
    assert attributed == told


@pytest.mark.parametrize("version", ["emission/2", "emission/3", EMISSION])
@pytest.mark.parametrize("case", SECOND, ids=lambda case: case["name"])
def test_every_call_of_the_second_golden_set_has_its_emitter(case, version):
    told, attributed = replay(case, version)
    assert attributed == told


def test_the_second_golden_set_is_what_its_generator_tells():
    assert emission_echo_generator.CASES.read_text("utf-8") == emission_echo_generator.lines()


def test_the_golden_set_is_what_the_generator_tells():
    assert emission_generator.CASES.read_text("utf-8") == emission_generator.lines()


def test_other_seeds_tell_stories_that_are_attributed_as_well():
    for case in emission_generator.cases(seed=16):
        told, attributed = replay(case)
        assert attributed == told, case["name"]


def test_the_golden_set_is_large_and_holds_every_emitter_often():
    emitters = [row[2] for case in [*GENERATED, *WRITTEN] for turn in case["turns"] for row in turn["dispatched"]]
    assert len(GENERATED) + len(WRITTEN) >= 280
    assert all(emitters.count(emitter) >= 50 for emitter in ("llm", "echoed", "code"))
    assert len({case["name"] for case in [*GENERATED, *WRITTEN]}) == len(GENERATED) + len(WRITTEN)
