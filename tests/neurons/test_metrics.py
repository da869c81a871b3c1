"""Metrics can be scraped, and every name of them is in the room's README."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from foundation.errors import ArenaError
from neurons.health.metrics import Metrics
from tests.arena.tail_stand import free_port

README = Path(__file__).parents[2] / "neurons" / "README.md"


def scraped(port: int) -> dict[str, float]:
    answer = httpx.get(f"http://127.0.0.1:{port}/metrics")
    families = text_string_to_metric_families(answer.text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_what_is_counted_can_be_scraped_with_its_labels() -> None:
    port, metrics = free_port(), Metrics()
    metrics.serve(port)
    metrics.turn_failures.labels("race", "U3030").inc()
    metrics.reorgs.inc(2)
    metrics.uid.set(-1)
    samples = scraped(port)
    assert samples["arena_turn_failures_total"] == 1
    assert (samples["arena_chain_reorgs_total"], samples["arena_uid"]) == (2, -1)
    assert 'loop="race"' in httpx.get(f"http://127.0.0.1:{port}/metrics").text


def test_every_metric_is_documented_and_every_documented_one_is_there() -> None:
    names = {family.name + ("_total" if family.type == "counter" else "") for family in Metrics().registry.collect()}
    table = README.read_text().partition("| metric |")[2].partition("\n\n")[0]
    documented = set(re.findall(r"`(arena_\w+)`", table))
    assert documented == names


def test_a_taken_port_is_a_coded_error_and_0_serves_nothing() -> None:
    port = free_port()
    Metrics().serve(0)
    Metrics().serve(port)
    with pytest.raises(ArenaError, match="V2060"):
        Metrics().serve(port)
