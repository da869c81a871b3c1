"""The search server: the reference's endpoints over one catalogue, from as many processes as there are cores.

Loopback unless told otherwise; workers share one listening socket and the index's mapped files; a worker that
dies is replaced; SIGTERM finishes what is being answered. An answer is computed in the event loop of its worker: a
search takes less time than handing it to a thread, and one thread is what a JVM engine may have. It knows no users,
keeps no state, writes no file.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foundation.errors import ArenaError
from harness.catalogue.engines.lucene import read_lucene_manifest, require_packages
from harness.catalogue.engines.registry import open_engine
from harness.catalogue.port import SearchRequest
from harness.catalogue.server.answers import METHODS, ServedCatalogue, answer
from harness.catalogue.server.guard import BACKLOG, GuardedProtocol, listen

if TYPE_CHECKING:
    import uvicorn

HOST, PORT = "127.0.0.1", 5631
_CONNECTIONS_MAX = 512  # of one worker; more are answered 503
_KEEP_ALIVE_S = 60  # the reference's
_STOP_TIMEOUT_S = 10
_HEALTH_TIMEOUT_S = 10  # a worker that has not answered its supervisor for so long is replaced
_ALLOW = ", ".join(METHODS).encode()


def open_served(path: Path, engine: str = "auto") -> ServedCatalogue:
    """The catalogue at `path` and its whole documents. Raises ArenaError as `open_engine` does.

    Over a Lucene index a whole document has the fields of a `Product` and no others.
    """
    catalogue = open_engine(engine, path)
    return ServedCatalogue(catalogue=catalogue, raw=catalogue.document)


class SearchApplication:
    """The ASGI application. It opens the catalogue at its start, so that it can be sent to a worker process before."""

    def __init__(self, open_it: Callable[[], ServedCatalogue]) -> None:
        self._open = open_it
        self._served: ServedCatalogue | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request, or the life of the process."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and self._served is not None:
            method = scope["method"]
            reply = answer(self._served, method, scope["path"], scope["query_string"])
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(reply.body)).encode())]
            if reply.status == 405 or method == "OPTIONS":
                headers.append((b"allow", _ALLOW))
            if scope["path"] == "/health":
                headers.append((b"x-catalogue-sha256", self._served.catalogue.content_sha256.encode()))
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await send({"type": "http.response.body", "body": reply.body})

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        try:
            self._served = self._open()
            self._served.catalogue.search(SearchRequest(q="a warm start"))  # compiles and maps before the first client
        except ArenaError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})


def make_config(application: SearchApplication, workers: int = 1) -> uvicorn.Config:
    """uvicorn's settings for serving `application`, limits included."""
    import uvicorn

    return uvicorn.Config(
        application,
        workers=workers,
        http=GuardedProtocol,
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_TIMEOUT_S,
        timeout_worker_healthcheck=_HEALTH_TIMEOUT_S,
    )


def serve(
    path: Path,
    *,
    engine: str = "auto",
    host: str = HOST,
    port: int = PORT,
    workers: int = 0,
    announce: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve the catalogue at `path` until SIGTERM or SIGINT. Must run in the main thread.

    `workers` 0 means one for each core this process may use. `announce` gets the base URL when connections are
    accepted. Raises ArenaError V2014 when the address cannot be had or workers cannot start, and as `open_engine` does
    when the index cannot be opened.
    """
    from uvicorn.config import STARTUP_FAILURE
    from uvicorn.supervisors import Multiprocess

    # what is wrong with the index is told here, with its code, and not by a worker's exit; this starts no JVM
    if engine == "lucene":
        require_packages()
        read_lucene_manifest(path)
    else:
        open_engine(engine, path)
    open_it = functools.partial(open_served, path, engine)
    with listen(host, port) as listener:
        config = make_config(SearchApplication(open_it), workers or available_cores())
        supervisor = Multiprocess(config, sockets=[listener])
        bound = listener.getsockname()[1]
        announce(f"http://{f'[{host}]' if ':' in host else host}:{bound}")
        supervisor.run()
    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise ArenaError("V2014", "a worker process could not start; its reason stands above")


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))
