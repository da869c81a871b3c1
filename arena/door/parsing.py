"""A bounded parse: whether a file is UTF-8 Python with an entry point, asked of a process of its own.

A hostile file costs that process and `within_s` at most, never this one; one source is parsed at a time. What
it could not decide in time, or what ended the process, is let through: the gate decides it later, without a client
that waits. The process is started with the first file and lasts. What it said of a file it is not asked again: the last
DECIDED_MAX of them are known by their hashes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
from collections import OrderedDict
from pathlib import Path

import msgspec

from arena.gate.report import Finding
from arena.policy import GateRules

LENGTH_BYTES = 4
MEMORY_BYTES = 1 << 30  # address space
ANSWER_BYTES_MAX = 1 << 20
DECIDED_MAX = 1_024
_ROOT = Path(__file__).parents[2]


class Parser:
    """Asks the parser's process, and replaces one that died or is too slow."""

    def __init__(self, rules: GateRules, *, within_s: float = 5.0) -> None:
        """`within_s`: how long one source may take, a start of the process included."""
        self._rules, self._within_s = rules, within_s
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._decided: OrderedDict[bytes, Finding | None] = OrderedDict()

    async def first_finding(self, source: bytes) -> Finding | None:
        """What keeps a source from the gate; None where nothing does, or nobody could say in time."""
        key = hashlib.sha256(source).digest()
        if key not in self._decided:
            try:
                async with asyncio.timeout(self._within_s), self._turn:
                    found = await self._ask(source)
            except TimeoutError:
                return None
            if found is None:
                return None
            self._decided[key] = found[0] if found else None
            if len(self._decided) > DECIDED_MAX:
                self._decided.popitem(last=False)
        return self._decided[key]

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _ask(self, source: bytes) -> list[Finding] | None:
        """All that keeps a source from the gate; None where the process ended over it."""
        is_answered = False
        try:
            if self._process is None:
                kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "arena.door.parser", msgspec.json.encode(self._rules).decode()),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    env={**kept, "PYTHONPATH": str(_ROOT), "OPENBLAS_NUM_THREADS": "1"},
                    limit=ANSWER_BYTES_MAX,
                    start_new_session=True,
                )
            process = self._process
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(len(source).to_bytes(LENGTH_BYTES) + source)
            await process.stdin.drain()
            line = await process.stdout.readline()
            found = msgspec.json.decode(line, type=list[Finding]) if line else None
            is_answered = found is not None
            return found
        except (OSError, ValueError, msgspec.DecodeError):  # it died while it was told; a line over the limit
            return None
        finally:
            if not is_answered:
                await self.close()
