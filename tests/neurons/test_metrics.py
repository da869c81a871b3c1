"""The probes tell how the node is."""

from __future__ import annotations

from pathlib import Path

import httpx2
import msgspec

from foundation.errors import Failure
from neurons.health.metrics import Metrics
from neurons.health.status import SILENT_MS, Ending, NodeFile, write_node_file
from neurons.node.reporting import serve_probes
from tests.arena.tail_stand import free_port
from tests.neurons.test_status import BEAT, NOW_MS


def test_the_probes_tell_a_well_node_from_one_that_waits_is_silent_or_ended(tmp_path: Path) -> None:
    now_ms = [NOW_MS]
    port = free_port()
    serve_probes(Metrics().registry, tmp_path, lambda: now_ms[0], "127.0.0.1", port)

    def asked() -> tuple[int, int, list[str]]:
        """Statuses of the two probes, and the codes that readiness names."""
        alive, ready = (httpx2.get(f"http://127.0.0.1:{port}/{path}") for path in ("healthz", "readyz"))
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
    assert httpx2.get(f"http://127.0.0.1:{port}/nothing").status_code == 404
