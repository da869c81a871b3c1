"""The scripted model: a deterministic shopping model of three skill levels, as a pure function and as a server.

`complete` depends on nothing but the request, so equal requests give equal bytes on every machine; the demo,
the tests and a miner's first local run need no model endpoint. It is product code, but it is no language model: it
reads the requests that `problems.synthesis` writes, and others as well as it can.
"""

from __future__ import annotations

from harness.inference.scripted.model import MODELS, complete
from harness.inference.scripted.server import RunningServer, start_scripted_server

__all__ = ["MODELS", "RunningServer", "complete", "start_scripted_server"]
