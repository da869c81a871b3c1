"""A validator that races on holds no more from race to race: processes, threads, files; over thirty races, memory."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from arena.store.archive import archive
from arena.store.embedded import start_embedded
from arena.store.objects import folder_location, open_objects
from neurons.demo.demo import DemoRun
from tests.arena.test_store_objects import DAY, age
from tests.arena.test_store_roles import as_owner
from tests.neurons.process_stand import HOTKEY, Seen, growth_mb, rest, soak

RACES = 200  # half a year
SLACK = 4  # a pool of threads or connections that fills by and by


def nothing_piles_up(seen: list[Seen]) -> None:
    """The last race holds open what the second did: the first one starts pools."""
    second, last = seen[1], seen[-1]
    assert (
        last.processes <= second.processes + 3
    )  # an episode's jail may be among them: bubblewrap, twice, and the agent
    assert last.threads <= second.threads + SLACK
    assert last.files <= second.files + SLACK


def test_races_leave_no_process_thread_or_file_behind(arena_base: Path, small_catalogue: Path) -> None:
    nothing_piles_up(soak(arena_base, small_catalogue, 3))


async def archive_all(run: DemoRun) -> int:
    """Make all that arrived so far old, and archive it beside the node; the bytes that the database takes then."""
    server = await asyncio.to_thread(start_embedded, run.folder)
    try:
        await age(server, HOTKEY)
        objects = open_objects(run.settings.bodies_url)
        await archive(server.owner_dsn, DAY + timedelta(days=1), objects, today=DAY + timedelta(days=9))
        ((taken,),) = await as_owner(server, "vacuum", "select pg_database_size(current_database())")
        return int(taken)
    finally:
        server.stop()


@pytest.mark.prove
def test_two_hundred_races_hold_no_more_memory_or_database_than_the_first_ones(
    arena_base: Path, small_catalogue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: list[int] = []

    def archive_now_and_again(run: DemoRun, race: int) -> None:
        if race % 20 == 0:
            taken.append(asyncio.run(archive_all(run)))

    resting_mb, _ = rest(arena_base, small_catalogue)
    bodies_url = folder_location(arena_base / "objects")
    races = soak(arena_base, small_catalogue, RACES, archive_now_and_again, bodies_url=bodies_url)
    growth = growth_mb(races)
    grown_kib = [(after - before) / 20 / 1024 for before, after in pairwise(taken)]
    with capsys.disabled():
        print(f"\nat rest {resting_mb:.0f} MB; by race {[round(one.most_mb) for one in races]}, growth {growth:.2f} MB")
        print(f"database {taken[0] >> 20} to {taken[-1] >> 20} MiB; KiB a race {[round(one) for one in grown_kib]}")
    nothing_piles_up(races)
    assert growth <= 2.0
