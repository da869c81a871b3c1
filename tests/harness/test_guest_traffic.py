"""Whose fault an episode is, over generated guests: never ours by anything a guest does, never the agent's by a fault
of ours.

The real host loop, recorder, tools, gateway and death reader; the model behind the gateway writes what it was told,
so completions are as hostile as requests.
"""

from __future__ import annotations

import collections
import errno
import json
from collections.abc import Iterator

import msgspec
import pytest

from arena.policies import PAPER
from foundation.canonical import canonical_bytes, foreign_text
from foundation.codes import Owner
from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue
from harness.inference.gateway import Gateway
from harness.inference.port import InferenceRules, ModelReply
from harness.session import EpisodePorts, EpisodeRules, run_episode
from harness.tools.registry import Toolbox
from harness.trace import EmittedCall, EvaluationBody
from judge.render import render, shown_bytes
from tests.harness.catalogue_stand import catalogue_of, product
from tests.harness.episode_stand import problem
from tests.harness.guest_traffic import PipeSandbox, Traffic, traffic

CASES = 1_000
BATCHES = 2
RULES = EpisodeRules(policy_sha256="0" * 64, catalogue_sha256="1" * 64, limits=PAPER.limits, models=("stand",))


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    products = (
        product("1000000001", "Red Reading Lamp", shop_id="700100", attributes={"Color": ["red"]}),
        product("1000000002", "Paper Lamp Shade", shop_id="700100"),
        product("1000000003", "Blue Canvas Bag", shop_id="700101"),
    )
    yield catalogue_of(products, tmp_path_factory.mktemp("catalogue"))


class Parrot:
    """An upstream that writes what the last message says: as its content, and as the arguments of a call."""

    name = "parrot"

    def complete(self, request: str, *_: object, **__: object) -> ModelReply:
        said = str(json.loads(request)["messages"][-1].get("content") or "")
        call = EmittedCall(call_id="c1", name="find_product", arguments=said)
        message = {"role": "assistant", "content": said, "tool_calls": []}
        return ModelReply(
            model="stand",
            content=said,
            calls=(call,),
            prompt_tokens=9,
            completion_tokens=9,
            message=foreign_text(message),
        )

    def probe(self, *_: object) -> bool:
        return True


def play(guest: Traffic, catalogue: Catalogue, upstream: object | None = None) -> EvaluationBody:
    toolbox = Toolbox("sn15", catalogue)
    gateway = Gateway(
        InferenceRules(models=("stand",), attempts=1),
        [upstream or Parrot()],
        toolbox.schemas,
        RULES.limits,
        sleep=lambda _: None,
    )
    ports = EpisodePorts(toolbox=toolbox, gateway=gateway, sandbox=PipeSandbox(guest), shown_bytes=shown_bytes)
    return run_episode("", problem(), ports, RULES).body


@pytest.mark.parametrize("batch", range(BATCHES))
def test_nothing_a_guest_does_is_anybodys_fault_but_its_own(catalogue: Catalogue, batch: int):
    stops: collections.Counter[str] = collections.Counter()
    for seed in range(batch * CASES // BATCHES, (batch + 1) * CASES // BATCHES):
        body = play(traffic(seed), catalogue)  # an ArenaError here is a fault that a guest laid on us
        assert body.failure is None or body.failure.owner is Owner.AGENT, (seed, body.failure)
        assert canonical_bytes(body)
        stops[body.stop] += 1
    assert {"returned", "raised", "not_json", "died", "protocol", "frame", "terminated"} <= stops.keys(), stops


@pytest.mark.parametrize("batch", range(2))
def test_a_trace_shows_no_more_bytes_than_were_counted(catalogue: Catalogue, batch: int):
    for seed in range(batch * 250, batch * 250 + 250):
        body = play(traffic(seed), catalogue)
        counted = sum(map(shown_bytes, body.events))
        assert len(render(msgspec.structs.replace(body, query="")).text.encode()) <= counted + 40


FAULTS: dict[str, Exception] = {
    "a full disk": OSError(errno.ENOSPC, "No space left on device"),
    "a full memory": MemoryError(),
    "a bug of the engine": RecursionError("maximum recursion depth exceeded"),
    "another bug": KeyError("postings"),
    "a coded fault": ArenaError("U3010", "the catalogue is away"),
}


class BrokenCatalogue:
    """Fails at every access, and knows how often."""

    content_sha256 = "1" * 64

    def __init__(self, error: Exception) -> None:
        self._error, self.asked = error, 0

    def __getattr__(self, name: str) -> object:
        def fail(*_: object, **__: object) -> object:
            self.asked += 1
            raise self._error

        return fail


class DeadUpstream:
    """An endpoint that is away, for the probe too."""

    name = "dead"

    def __init__(self, error: Exception) -> None:
        self._error, self.asked = error, 0

    def complete(self, *_: object, **__: object) -> ModelReply:
        self.asked += 1
        raise self._error

    def probe(self, *_: object, **__: object) -> bool:
        return False


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_fault_of_ours_is_charged_to_an_agent(catalogue: Catalogue, batch: int):
    """The same guests over tools, a catalogue and a model that fail: a case counts when it reached what is broken."""
    reached = 0
    faults = list(FAULTS.values())
    for seed in range(batch * CASES // BATCHES, (batch + 1) * CASES // BATCHES):
        error = faults[seed % len(faults)]
        broken = BrokenCatalogue(error)
        dead = DeadUpstream(ArenaError("U3002", "connection refused") if seed % 2 else error)
        try:
            body = play(traffic(seed), broken, dead)  # type: ignore[arg-type]
        except ArenaError as raised:
            assert raised.owner is not Owner.AGENT, (seed, raised)
            assert broken.asked + dead.asked > 0, (seed, raised)
            reached += 1
            continue
        assert broken.asked + dead.asked == 0, (seed, body.stop, body.failure)
    assert reached > CASES // BATCHES // 4
