"""Tools: btcli in a virtual environment of its own, reading a subnet of the node double."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.arena.chain_stands import make_node
from tests.compat.installed import environment_of, last_words, release_of, run_command
from tests.compat.rows import Finding, Kind

NETUID, STAKE_RAO, WEIGHT = 15, 10**12, 65_535
# Arguments, and what has to stand in the answer: a hotkey (by its uid), or the words.
BITTENSOR_11 = (
    ("query metagraph --netuid 15 --json", ("hotkey 0", "hotkey 2")),
    ("subnets metagraph 15 --json", ("hotkey 0", "hotkey 2")),
    ("query neurons --netuid 15 --json", ("hotkey 0", "hotkey 2")),
    ("query weights --netuid 15 --json", ("0.99",)),
    ("query subnet-hyperparameters --netuid 15 --json", ('"tempo": 360',)),
    ("subnets hyperparameters 15 --json", ('"tempo": 360', "activity_cutoff_factor")),
    ("hparams get --netuid 15 --json", ('"tempo": 360',)),
)
BTCLI_9 = (
    ("subnets show --netuid 15 --no-prompt --json-output", ("hotkey 0", "hotkey 2")),
    ("subnets hyperparameters --netuid 15 --json-output", ("tempo", "360")),
    ("subnets show --netuid 15 --no-prompt", ("Subnet 15", "0/360")),
    ("subnets list --json-output", ('"netuid": 15', '"sn_tempo": 360')),
    ("subnets list", ("0/360",)),
)


@contextlib.contextmanager
def _node() -> Iterator[tuple[str, tuple[str, ...]]]:
    """A node with a subnet of three neurons, of which the first has stake, a permit and weights; and their hotkeys."""
    from bittensor.sp_core import Keypair

    hotkeys = tuple(str(Keypair.create_from_uri(f"//Guest{uid}").ss58_address) for uid in range(3))
    node = make_node()
    for hotkey in hotkeys:
        node.enrol(hotkey)
    node.stake(hotkeys[0], STAKE_RAO, has_permit=True)
    node.write("SubtensorModule", "Weights", [NETUID, 0], [(1, WEIGHT), (2, 100)])
    node.advance()
    told: dict[str, str] = {}
    is_up, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with node.start() as server:
            told["url"] = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            is_up.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    is_up.wait()
    try:
        yield told["url"], hotkeys
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


def examine(record: Path) -> Sequence[Finding]:
    """A row per command."""
    release = release_of(record)
    commands = BITTENSOR_11 if release.startswith("bittensor ") else BTCLI_9
    found = []
    with _node() as (url, hotkeys), tempfile.TemporaryDirectory(prefix="compat-tools-") as home:
        for arguments, wanted in commands:
            command = [environment_of(record) / "bin" / "btcli", *arguments.split(), "--network", url]
            outcome = run_command(command, Path(home), BITTENSOR_RUNTIME_CACHE_DIR=home, COLUMNS="400")
            words = [hotkeys[int(each[-1])] if each.startswith("hotkey ") else each for each in wanted]
            missing = [each for each, word in zip(wanted, words, strict=True) if word not in outcome.text]
            is_red = outcome.status != 0 or bool(missing)
            result = last_words(outcome) if outcome.status != 0 else f"answered, without {', '.join(missing)}"
            shown = f"btcli {arguments}"
            if not is_red:
                result = f"answered, with {', '.join(wanted)}"
            found.append(Finding(name=release, ran=f"{shown} --network NODE", result=result, is_red=is_red))
    return found


KIND = Kind(
    folder="tools",
    patterns=tuple(
        f"*/lib/python3*/site-packages/{name}-*.dist-info/RECORD" for name in ("bittensor", "bittensor_cli")
    ),
    examine=examine,
)
