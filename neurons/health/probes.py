"""What other machines ask a node over HTTP: metrics for Prometheus, and the two probes that supervisors know.

`/metrics`, `/healthz` (200 while heartbeats come, else 503: restart it) and `/readyz` (200 while nothing waits for a
person, else 503 with the points of `arena validator status`). Both probes read the node's own file, so that they answer
while its loops are busy, and tell when they stand.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import msgspec
from prometheus_client import CollectorRegistry, make_wsgi_app

from foundation.errors import ArenaError
from neurons.health.node_file import read_node_file
from neurons.health.status import assess

REQUEST_S = 10  # a slow client's connection ends


class ProbeServer:
    """The listener of one node. Reads what is asked for at each request and keeps nothing."""

    def __init__(self, registry: CollectorRegistry, state_dir: Path, now_ms: Callable[[], int]) -> None:
        """`now_ms` gives unix milliseconds."""
        self._metrics = make_wsgi_app(registry)
        self._state_dir, self._now_ms = state_dir, now_ms

    def serve(self, host: str, port: int) -> None:
        """Answer at `host`:`port` until the process ends; port 0 serves nothing. Raises ArenaError V2014 when it is
        taken."""
        if not port:
            return
        try:
            server = make_server(host, port, self._answer, server_class=_ProbeListener, handler_class=_ProbeHandler)
        except OSError as error:
            raise ArenaError(
                "V2014",
                f"metrics_port {port} of {host} cannot be had: {error.strerror}",
                fix=f"--metrics-port {port + 1}, or 0 for none",
            ) from error
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def _answer(self, environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path in ("/", "/metrics"):
            found: Iterable[bytes] = self._metrics(environ, start)
            return found
        if path not in ("/healthz", "/readyz"):
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/metrics, /healthz and /readyz are here\n"]
        free = shutil.disk_usage(self._state_dir).free
        status = assess(self._now_ms(), read_node_file(self._state_dir), None, free)
        is_good = status.is_running and (path == "/healthz" or not status.needs_person)
        points = [] if path == "/healthz" and is_good else status.points
        start("200 OK" if is_good else "503 Service Unavailable", [("Content-Type", "application/json")])
        return [msgspec.json.encode({"is_running": status.is_running, "points": points})]


class _ProbeListener(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _ProbeHandler(WSGIRequestHandler):
    timeout = REQUEST_S

    def log_message(self, format: str, *args: object) -> None:
        """Requests of probes are no events."""
