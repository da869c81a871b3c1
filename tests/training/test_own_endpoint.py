"""A run's own endpoint is believed: a prompt over its context fails one call, an outage is an outage."""

from __future__ import annotations

import pytest

from foundation.errors import ArenaError
from harness.sandbox.port import GuestCallError
from tests.harness.inference_stand import ASK, RecordingUpstream, make_gateway
from training.rollouts.own_endpoint import OwnEndpoint


def test_what_it_calls_malformed_fails_the_call_at_once() -> None:
    own = RecordingUpstream("own", "A1040")
    gateway = make_gateway(OwnEndpoint(own))
    with pytest.raises(GuestCallError) as caught:
        gateway.chat(ASK, completion_tokens_left=100)
    assert caught.value.code == "A1040" and not own.probed
    assert gateway.chat({**ASK, "seed": 1}, completion_tokens_left=100).reply.content == "ok"


def test_an_endpoint_that_is_away_is_no_fault_of_the_policy() -> None:
    with pytest.raises(ArenaError, match="U3002"):
        away = RecordingUpstream("own", *["U3002"] * 9, is_healthy=False)
        make_gateway(OwnEndpoint(away)).chat(ASK, completion_tokens_left=100)
