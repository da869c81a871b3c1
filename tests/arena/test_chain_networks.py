"""What a network has to look like: anything else is a wrong setting, told before a connection is tried."""

from __future__ import annotations

from pathlib import Path

import pytest
from bittensor import settings

from arena.chain.opening import NETWORKS, open_subtensor
from arena.chain.real import BittensorSubtensor
from foundation.errors import ArenaError
from tests.arena.chain_stands import NETUID, Clock

WRONG = ("finny", "Finney", "https://203.0.113.7", "wss:/host", "ws://", "ws://:9944", "ws://host:70000", "", "ws")
WRONG = (*WRONG, "ws://ho st:9944", "ws://host:0", " wss://host", "wss://[::1")


def test_a_network_is_opened_without_being_asked_and_anything_else_is_a_wrong_setting(tmp_path: Path) -> None:
    named = {"netuid": NETUID, "state_dir": tmp_path, "now_ms": Clock()}
    for network in WRONG:
        with pytest.raises(ArenaError, match="V2030") as caught:
            open_subtensor(network, **named)
        assert repr(network) in caught.value.failure.detail and not caught.value.entry.is_retryable
        assert network != "finny" or caught.value.fix == "did you mean `finney`?"
    for network in (*NETWORKS, "ws://127.0.0.1:9944", "wss://node.example", "wss://[::1]:443/path"):
        assert isinstance(open_subtensor(network, **named), BittensorSubtensor)
    assert set(NETWORKS) | {"local"} == set(settings.NETWORKS)
