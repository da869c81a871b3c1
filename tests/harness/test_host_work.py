"""What an agent can make the host do: counted alike by every engine, bounded by the policy, never a shortened page."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from arena.policies import POLICIES
from harness.catalogue.native import open_catalogue
from harness.catalogue.port import Catalogue
from harness.catalogue.synthetic import generate
from harness.inference.gateway import Gateway
from harness.inference.port import InferenceRules
from harness.limits import EpisodeLimits
from harness.sandbox.port import EpisodeOver, GuestCallError
from harness.session import Recorder
from harness.tools.registry import PROFILES, Toolbox
from tests.harness.catalogue_stand import index_of
from tests.harness.episode_stand import Answering
from tests.harness.hostile_inputs import hostile_calls, hostile_requests

PRODUCTS = list(generate(2_000, 7))
CALLS = hostile_calls(PRODUCTS)
LIMIT = POLICIES["paper"].limits.host_work


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return index_of(PRODUCTS, tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def catalogue(index: Path) -> Catalogue:
    return open_catalogue(index)


def recorder(catalogue: Catalogue, profile: str = "sn15", **limits: int) -> Recorder:
    toolbox = Toolbox(profile, catalogue)
    chosen = EpisodeLimits(**limits)
    gateway = Gateway(InferenceRules(models=("stand",)), [Answering()], toolbox.schemas, chosen)
    return Recorder(toolbox, gateway, chosen, lambda _: 0, "")


def ask(host: Recorder, method: str, params: dict[str, object]) -> str:
    """What came back: an answer's text, the code of a refusal, or "over"."""
    try:
        return json.dumps(host.call(method, params))
    except GuestCallError as refusal:
        return refusal.code
    except EpisodeOver:
        return "over"


def units_of(catalogue: Catalogue, name: str, arguments: object, profile: str = "sn15") -> tuple[int, str]:
    host = recorder(catalogue, profile)
    answer = ask(host, "tool.call", {"name": name, "arguments": arguments})
    return host.work.spent, answer


@pytest.mark.parametrize("profile", PROFILES)
def test_every_hostile_call_is_answered_counted_and_far_from_the_limit(profile: str, catalogue: Catalogue) -> None:
    for why, (name, arguments) in itertools.islice(CALLS.items(), 0, None, 1 if profile == "sn15" else 4):
        spent, answer = units_of(catalogue, name, arguments, profile)
        assert answer != "over", why
        assert 10_000 <= spent <= LIMIT // 40, (why, spent)


def test_every_hostile_model_request_is_answered_and_counted(catalogue: Catalogue) -> None:
    for why, params in hostile_requests().items():
        host = recorder(catalogue)
        ask(host, "llm.chat", params)
        assert 20_000 <= host.work.spent <= LIMIT // 40, why


def test_units_are_the_same_from_both_kernels_warm_and_cold(index: Path, catalogue: Catalogue) -> None:
    pytest.importorskip("numba")
    compiled = open_catalogue(index, kernel="numba")
    for why, (name, arguments) in itertools.islice(CALLS.items(), 0, None, 5):
        cold = units_of(open_catalogue(index, kernel="numpy"), name, arguments)
        assert cold == units_of(catalogue, name, arguments) == units_of(compiled, name, arguments), why


@pytest.mark.parametrize("limit", [60_000, 400_000, 2_000_000])
def test_a_sequence_of_hostile_inputs_ends_at_its_limit_and_not_before_and_no_answer_is_shortened(
    limit: int, catalogue: Catalogue
) -> None:
    free, bound = recorder(catalogue, tool_calls=1_000), recorder(catalogue, tool_calls=1_000, host_work=limit)
    for name, arguments in itertools.cycle(CALLS.values()):
        params: dict[str, object] = {"name": name, "arguments": arguments}
        expected, got = ask(free, "tool.call", params), ask(bound, "tool.call", params)
        assert bound.work.spent <= limit
        if got == "over":
            break
        assert got == expected
    assert bound.events == free.events[:-1] and free.work.spent > limit
    assert bound.breach is not None and bound.breach[0] == "host_work"
    assert (bound.breach[1].code, bound.breach[1].detail) == ("A1021", f"{limit} units of host work")
