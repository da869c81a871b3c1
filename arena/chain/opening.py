"""From a network's name to open ports: which adapter serves it, and where the local twin keeps its file.

One place, so that miner, validator and demo meet on the same chain. `local` is the twin in the state folder, an `http://`
address is the twin that another machine serves; a name in `NETWORKS` is a Bittensor network and a `ws://` or `wss://`
address a node of one, with drand as the beacon. Anything else is refused before a connection is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from arena.chain.beacon import DrandBeacon, LocalBeacon, LocalTimelock, QuicknetTimelock
from arena.chain.keys import keypair_signer, wallet_signer
from arena.chain.local import LocalSubtensor, RemoteSubtensor
from arena.chain.port import LOCAL_NETWORK, Beacon, Signer, Subtensor, Timelock, is_local
from arena.chain.real import BittensorSubtensor
from foundation.errors import ArenaError, nearest

NETWORKS = ("finney", "test", "archive", "devnet")  # the SDK's names; its `local` is `ws://127.0.0.1:9944` here
OWNER_URI = "//Owner"  # the local subnet's owner: uid 0 from the first block on, where emissions burn


def local_chain_path(state_dir: Path) -> Path:
    """Where the local chain of a state folder lives."""
    return state_dir / "chain" / "local.sqlite"


def open_subtensor(
    network: str,
    *,
    netuid: int,
    state_dir: Path,
    now_ms: Callable[[], int],
    mechanism: int = 0,
    proxy: Signer | None = None,
) -> Subtensor:
    """The chain of a network; `mechanism` is the subnet's incentive mechanism whose weights are set and read, `proxy`
    signs extrinsics for the hotkey that sends.

    Raises ArenaError U3030 and V2030 as `LocalSubtensor` and `RemoteSubtensor` do, and V2030 for what is no network,
    for a mechanism of a local chain that isn't its one and for a proxy there; a real chain, and one of another machine,
    is connected to at its first call.
    """
    if not is_local(network) and network not in NETWORKS and not _is_node_address(network):
        names = (LOCAL_NETWORK, *NETWORKS)
        detail = (
            f"no network {network!r}; there are {', '.join(names)}, and addresses: ws:// or wss:// of a node, http://"
        )
        near = nearest(network.strip(), names)
        fix = f"did you mean `{near[0]}`?" if near else "check --subtensor.network"
        raise ArenaError("V2030", f"{detail} of a local chain on another machine", fix=fix)
    if is_local(network) and mechanism:
        raise ArenaError("V2030", f"mechanism {mechanism}: a local chain has one, 0", fix="leave mechanism at 0")
    if is_local(network) and proxy:
        raise ArenaError("V2030", "wallet_proxy: a local chain has no proxies", fix="leave wallet_proxy empty")
    if network == LOCAL_NETWORK:
        owner = keypair_signer(OWNER_URI).hotkey
        return LocalSubtensor(local_chain_path(state_dir), now_ms=now_ms, netuid=netuid, owner=owner)
    if is_local(network):
        return RemoteSubtensor(network, netuid=netuid)
    return BittensorSubtensor(network, netuid=netuid, mechanism=mechanism, proxy=proxy)


def _is_node_address(text: str) -> bool:
    """Whether a text is a node's websocket address, whatever answers there."""
    try:
        parts = urlsplit(text)
        is_port_possible = parts.port != 0
    except ValueError:  # an invalid port, or brackets that don't close
        return False
    is_plain = text.isascii() and text.isprintable() and " " not in text
    return is_plain and text.startswith(("ws://", "wss://")) and bool(parts.hostname) and is_port_possible


def open_beacon(network: str, now_ms: Callable[[], int]) -> Beacon:
    """The beacon of a network: drand quicknet, or its twin for `local`."""
    return LocalBeacon(now_ms) if is_local(network) else DrandBeacon(now_ms)


def open_timelock(network: str) -> Timelock:
    """The timelock that goes with the network's beacon."""
    return LocalTimelock() if is_local(network) else QuicknetTimelock()


def open_signer(network: str, *, name: str, hotkey: str, path: str | Path, password_file: Path | None = None) -> Signer:
    """The signer of a wallet's hotkey; on `local`, a hotkey such as `//Alice` is a development key. `password_file`
    opens an encrypted hotkey.

    Raises ArenaError V2030, also for a development key on a real network: everybody has it.
    """
    if not hotkey.startswith("//"):
        return wallet_signer(name, hotkey, path, password_file=password_file)
    if not is_local(network):
        detail = f"{hotkey} is a development key, which everybody has, and the network is {network}"
        raise ArenaError("V2030", detail, fix="name a wallet: --wallet.name and --wallet.hotkey")
    return keypair_signer(hotkey)
