"""What a network has to look like: anything else is a wrong setting, told before a connection is tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.chain.opening import NETWORKS, open_subtensor
from arena.chain.real import BittensorSubtensor
from foundation.errors import ArenaError
from tests.arena.chain_stands import NETUID, Clock


@pytest.mark.parametrize(
    "network",
    (
        *("finny", "Finney", "mainnet", "https://203.0.113.7", "wss:/host", "ws://", "ws://:9944", "ws://host:70000"),
        *("", "ws", "ws://ho st:9944", "ws://host:0", " wss://host", "wss://[::1"),
    ),
)
def test_what_is_no_network_is_a_wrong_setting_before_anything_is_asked(network: str, tmp_path: Path) -> None:
    with pytest.raises(ArenaError, match="V2030") as caught:
        open_subtensor(network, netuid=NETUID, state_dir=tmp_path, now_ms=Clock())
    assert repr(network) in caught.value.failure.detail and not caught.value.entry.is_retryable


def test_a_network_that_is_nearly_one_is_told_which(tmp_path: Path) -> None:
    with pytest.raises(ArenaError) as caught:
        open_subtensor("finny", netuid=NETUID, state_dir=tmp_path, now_ms=Clock())
    assert caught.value.fix == "did you mean `finney`?"


@pytest.mark.parametrize("network", [*NETWORKS, "ws://127.0.0.1:9944", "wss://node.example", "wss://[::1]:443/path"])
def test_a_network_is_opened_without_being_asked(network: str, tmp_path: Path) -> None:
    chain = open_subtensor(network, netuid=NETUID, state_dir=tmp_path, now_ms=Clock())
    assert isinstance(chain, BittensorSubtensor)


def test_the_names_are_the_sdks() -> None:
    from bittensor import settings

    assert set(NETWORKS) | {"local"} == set(settings.NETWORKS)
