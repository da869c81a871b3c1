"""Metrics can be scraped, every name of them is in the room's README, and the probes tell how the node is."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from foundation.errors import ArenaError, Failure
from harness.inference.ledger import ModelUsage
from judge.budget import Spending
from neurons.health.metrics import Metrics
from neurons.health.node_file import Ending, NodeFile, write_node_file
from neurons.health.status import SILENT_MS
from neurons.node.reporting import ProbeServer
from tests.arena.tail_stand import free_port
from tests.neurons.test_status import BEAT, NOW_MS

README = Path(__file__).parents[2] / "neurons" / "README.md"


def served(metrics: Metrics, folder: Path, now_ms: int = NOW_MS) -> str:
    """The address of a listener over `metrics` and the node file in `folder`."""
    port = free_port()
    ProbeServer(metrics.registry, folder, lambda: now_ms).serve("127.0.0.1", port)
    return f"http://127.0.0.1:{port}"


def test_what_is_counted_can_be_scraped_with_its_labels(tmp_path: Path) -> None:
    metrics = Metrics()
    metrics.turn_failures.labels("race", "U3030").inc()
    metrics.reorgs.inc(2)
    metrics.uid.set(-1)
    usage = ModelUsage(upstream="one", model="m", requests=3, prompt_tokens=70, latency_ms=1_500, cost_micro_usd=2_000)
    metrics.count_usage([usage, msgspec.structs.replace(usage, upstream="", cost_micro_usd=None)])
    metrics.count_judging(Spending(verdicts=1, requests=2, completion_tokens=9, micro_usd=500, ms=250))
    answer = httpx.get(served(metrics, tmp_path) + "/metrics").text
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer)
        for sample in family.samples
    }
    assert samples["arena_turn_failures_total", ("code", "U3030"), ("loop", "race")] == 1
    assert (samples["arena_chain_reorgs_total",], samples["arena_uid",]) == (2, -1)
    one = (("model", "m"), ("upstream", "one"))
    assert (samples["arena_model_seconds_total", *one], samples["arena_model_cost_usd_total", *one]) == (1.5, 0.002)
    assert samples["arena_model_requests_total", ("model", "m"), ("upstream", "none")] == 3
    assert (
        samples[
            "arena_judge_tokens_total",
            ("kind", "completion"),
        ]
        == 9
    )
    assert samples["arena_judge_seconds_total",] == 0.25


def test_every_metric_is_documented_and_every_documented_one_is_there() -> None:
    names = {family.name + ("_total" if family.type == "counter" else "") for family in Metrics().registry.collect()}
    table = README.read_text().partition("| metric |")[2].partition("\n\n")[0]
    documented = set(re.findall(r"`(arena_\w+)`", table))
    assert documented == names


def test_a_taken_port_is_a_coded_error_and_0_serves_nothing(tmp_path: Path) -> None:
    port, server = free_port(), ProbeServer(Metrics().registry, tmp_path, lambda: NOW_MS)
    server.serve("127.0.0.1", 0)
    server.serve("127.0.0.1", port)
    with pytest.raises(ArenaError, match="V2014"):
        server.serve("127.0.0.1", port)


def test_the_probes_tell_a_well_node_from_one_that_waits_is_silent_or_ended(tmp_path: Path) -> None:
    now_ms = [NOW_MS]
    port = free_port()
    ProbeServer(Metrics().registry, tmp_path, lambda: now_ms[0]).serve("127.0.0.1", port)

    def asked() -> tuple[int, int, list[str]]:
        """Statuses of the two probes, and the codes that readiness names."""
        alive, ready = (httpx.get(f"http://127.0.0.1:{port}/{path}") for path in ("healthz", "readyz"))
        return alive.status_code, ready.status_code, [point["code"] for point in ready.json()["points"]]

    assert asked() == (503, 503, ["V2116"])  # never ran
    write_node_file(tmp_path, NodeFile(beat=BEAT))
    assert asked() == (200, 200, [])
    no_permit = msgspec.structs.replace(BEAT.chain, has_permit=False)
    write_node_file(tmp_path, NodeFile(beat=msgspec.structs.replace(BEAT, chain=no_permit)))
    assert asked() == (200, 503, ["U3035"])
    write_node_file(tmp_path, NodeFile(beat=BEAT, ending=Ending(at_ms=NOW_MS, failure=Failure(code="V2021"))))
    assert asked()[:2] == (503, 503)
    write_node_file(tmp_path, NodeFile(beat=BEAT))
    now_ms[0] += SILENT_MS + 1
    assert asked() == (503, 503, ["V2116"])
    assert httpx.get(f"http://127.0.0.1:{port}/nothing").status_code == 404
