"""A validator that is started again while the chain's runtime is one that its release doesn't know."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.chain.keys import generate_signer
from foundation.errors import ArenaError
from neurons.health.node_file import ChainFacts, NodeFile, note_ending, read_node_file, write_node_file
from neurons.loops.watches import ChainWatch
from neurons.node.opening import permitted_at_start
from tests.neurons.clock_stand import Desk, Time
from tests.neurons.test_status import BEAT

DRIFT = ArenaError("U3037", "spec 500, missing SubtensorModule.TotalHotkeyAlpha")


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    made = Desk(None, generate_signer(), tmp_path, Time())  # type: ignore[arg-type]  # nothing here is stored
    await made.settle_in()
    made.time.pass_s(60)
    return made


def drift(desk: Desk, error: ArenaError = DRIFT) -> None:
    async def unreadable(block: int | None = None) -> None:
        raise error

    desk.chain.metagraph = unreadable  # type: ignore[method-assign,assignment]


def beat_of(desk: Desk, chain: ChainFacts, **changes: object) -> None:
    own = {"hotkey": desk.signer.hotkey, "netuid": desk.chain.netuid, **changes}
    write_node_file(desk.folder, NodeFile(beat=replace(BEAT, chain=chain, **own)))


async def start(desk: Desk) -> tuple[str, ...] | None:
    return await permitted_at_start(desk.chain, desk.signer.hotkey, desk.folder)


async def test_a_chain_that_can_be_read_says_who_holds_a_permit(desk: Desk) -> None:
    beat_of(desk, ChainFacts())
    assert await start(desk) == (desk.signer.hotkey,)
    with pytest.raises(ArenaError, match="V2065"):
        await permitted_at_start(desk.chain, generate_signer().hotkey, desk.folder)


async def test_a_restart_goes_on_with_the_permit_seen_last_however_often(desk: Desk) -> None:
    beat_of(desk, await ChainWatch(desk.node).turn())
    drift(desk)
    for _ in range(2):
        assert await start(desk) is None
        desk.time.pass_s(60)
        watch = ChainWatch(desk.node)
        with pytest.raises(ArenaError, match="U3037"):
            await watch.turn()
        beat_of(desk, watch.facts)  # the heartbeat of a process that never saw its place
        note_ending(desk.folder, DRIFT.failure, desk.time())
    assert read_node_file(desk.folder).beat.chain.placed_block == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("changes", [{"hotkey": "5Other"}, {"netuid": 99}])
async def test_another_hotkeys_permit_and_another_subnets_is_none(desk: Desk, changes: dict[str, object]) -> None:
    beat_of(desk, ChainFacts(uid=1, has_permit=True), **changes)
    drift(desk)
    with pytest.raises(ArenaError, match="U3037"):
        await start(desk)


@pytest.mark.parametrize("facts", [None, ChainFacts(), ChainFacts(uid=1, placed_block=9)])
async def test_without_a_permit_seen_before_the_start_ends_with_the_reason(
    desk: Desk, facts: ChainFacts | None
) -> None:
    if facts is not None:
        beat_of(desk, facts)
    drift(desk)
    with pytest.raises(ArenaError, match=r"U3037.*TotalHotkeyAlpha"):
        await start(desk)


async def test_a_chain_that_is_away_is_no_drift(desk: Desk) -> None:
    beat_of(desk, ChainFacts(uid=1, has_permit=True, placed_block=9))
    drift(desk, ArenaError("U3030", "away"))
    with pytest.raises(ArenaError, match="U3030"):
        await start(desk)
