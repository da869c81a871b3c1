"""The gateway: retries by fault class, failover, whose fault a failure is, and the contract over real endpoints."""

from __future__ import annotations

import pytest

from arena.race.decider import is_nobodys_fault
from foundation.errors import ArenaError, Failure
from harness.inference.gateway import Ledger
from harness.inference.journal import MemoryJournal
from harness.limits import TokenPrice
from harness.sandbox.port import GuestCallError
from tests.harness.inference_stand import ASK, MODEL, RecordingUpstream, make_gateway


def test_without_an_endpoint_for_each_model_there_is_no_gateway() -> None:
    with pytest.raises(ArenaError, match=rf"U3001.*no endpoint is configured for {MODEL}, other-model"):
        make_gateway()
    with pytest.raises(ArenaError, match=r"U3001.*configured for other-model"):
        make_gateway(dedicated={MODEL: (RecordingUpstream(),)})


@pytest.mark.parametrize("code", ["A1040", "U3002", "U3008"])
def test_a_request_that_got_no_turn_here_is_nobodys_outage_and_never_the_agents(code: str) -> None:
    class Full(RecordingUpstream):
        def probe(self, request: str) -> Failure | None:
            return super().probe(request) or Failure(code="U3008")

    upstreams = [Full(name, *[code] * 99) for name in ("first", "second")]
    for some, is_last in ((upstreams[:1], False), (upstreams[:1], True), (upstreams, True)):
        with pytest.raises(ArenaError, match=r"U3008.*first: said so") as caught:
            make_gateway(*some, is_last=is_last).chat(ASK, completion_tokens_left=100)
        assert caught.value.entry.is_retryable and not is_nobodys_fault(caught.value.failure)
    assert code != "U3008" or all(one.probed == [] for one in upstreams), "it would tell of the endpoint alone"


def test_a_request_that_failed_in_a_short_outage_gets_a_second_round() -> None:
    gateway = make_gateway(RecordingUpstream("first", *["U3002"] * 4))
    assert gateway.chat(ASK, completion_tokens_left=100).reply.content == "ok"


def test_the_ledger_counts_every_admitted_request() -> None:
    ledger = Ledger()
    flaky = RecordingUpstream("first", "U3002", "U3004")
    make_gateway(flaky, ledger=ledger).chat(ASK, completion_tokens_left=100)
    down = make_gateway(RecordingUpstream("first", *["U3004"] * 9, is_healthy=False), ledger=ledger)
    with pytest.raises(ArenaError):
        down.chat(ASK, completion_tokens_left=100)
    with pytest.raises(GuestCallError):
        down.chat({**ASK, "n": 2}, completion_tokens_left=100)
    unanswered, first = ledger.usage()
    assert (unanswered.upstream, unanswered.requests, unanswered.attempts, unanswered.probes) == ("", 1, 3, 2)
    assert (first.upstream, first.model, first.requests, first.attempts) == ("first", MODEL, 1, 3)
    assert (first.prompt_tokens, first.completion_tokens, first.cost_micro_usd) == (3, 2, None)
    price = TokenPrice(prompt_micro_usd=1_000_000, completion_micro_usd=100_000)
    assert [one.cost_micro_usd for one in ledger.usage({"first": price})] == [0, 4]  # 3.2, rounded up


def test_an_outage_of_another_models_endpoint_is_looked_for_there() -> None:
    """An agent that got a bad reply of one model can't make an outage by asking for another one that is down."""
    general, own = RecordingUpstream("general"), RecordingUpstream("own", *["U3002"] * 99, is_healthy=False)
    gateway = make_gateway(general, dedicated={"other-model": (own,)}, journal=MemoryJournal())
    gateway.chat({**ASK, "model": MODEL}, completion_tokens_left=100)
    with pytest.raises(ArenaError, match="U3007"):
        gateway.chat({**ASK, "model": "other-model"}, completion_tokens_left=100)
    assert [request["model"] for request in general.probed] == [MODEL]
