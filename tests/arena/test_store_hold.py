"""The hold on a hotkey: one process at a time, let go by the server when its holder is gone."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arena.chain.port import Signer
from arena.store.embedded import EmbeddedServer
from foundation.errors import ArenaError
from tests.arena.conftest import OpenStore

ROOT = Path(__file__).parents[2]


async def test_the_server_lets_go_of_a_killed_holder(
    postgres: EmbeddedServer, open_store: OpenStore, signer: Signer
) -> None:
    command = [sys.executable, "-m", "tests.arena.hold_forever", postgres.dsn_for(signer.hotkey)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == signer.hotkey
        with pytest.raises(ArenaError, match="V2024"):
            await open_store(signer.hotkey, is_exclusive=True)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    await open_store(signer.hotkey, is_exclusive=True)
