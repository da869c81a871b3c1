"""A disk lost at noon and last night's backup: the node goes on under its hotkey, with every record that was signed."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.records.model import StoredCheckpoint
from arena.store.embedded import start_embedded
from arena.store.objects import folder_location
from neurons.demo.demo import WATCH_S, DemoRun, running_validator
from tests.neurons.arena_stand import build_small_catalogue, make_run, opened_store, read_back, short_folder
from tests.prove.test_sleepers import settled_races
from tests.test_cli import arena

OF_THE_DISK = ("postgres", "checkpoints", "store.json", "node.json", "held")


def lose_disk(run: DemoRun, base: Path) -> DemoRun:
    """A node's folder with what another machine has of it: chain, bank and settings, and nothing of the log."""
    folder = base / "again"
    shutil.copytree(run.folder, folder, ignore=shutil.ignore_patterns(*OF_THE_DISK), symlinks=True)
    return replace(run, folder=folder, settings=run.settings.model_copy(update={"state_dir": folder}))


def wait_for(run: DemoRun, process: subprocess.Popen[bytes], words: str, times: int = 1) -> None:
    while (said := (run.folder / "validator.log").read_text()).count(words) < times:
        assert process.poll() is None, said[-2_000:]
        time.sleep(WATCH_S)


async def signed_states(run: DemoRun) -> list[StoredCheckpoint]:
    async with opened_store(run.settings) as store:
        return await store.checkpoints()


@pytest.mark.prove
def test_a_node_restored_from_an_older_backup_goes_on_under_its_hotkey() -> None:
    with short_folder() as base:
        objects = folder_location(base / "objects")
        run = make_run(base, build_small_catalogue(base), bodies_url=objects, names=("expert", "hasty"))
        with running_validator(run) as process:
            asyncio.run(settled_races(run, process, 1))
            kept = arena("store", "backup", "--out", str(base / "kept"), "--state-dir", str(run.folder))
            assert kept.returncode == 0, kept.stderr
            asyncio.run(settled_races(run, process, 2))
            wait_for(run, process, "runs of an agent on a problem begin", times=3)
        with running_validator(run) as process:  # its end has signed the log as far as it got, in the third race
            wait_for(run, process, '"ready"')
            time.sleep(2)
            process.kill()
            process.wait()
        start_embedded(run.folder).stop()
        before = asyncio.run(signed_states(run))
        again = lose_disk(run, base)
        restored = arena("store", "restore", str(base / "kept"), "--state-dir", str(again.folder))
        assert restored.returncode == 0, restored.stderr
        began = time.monotonic()
        with running_validator(again) as process:
            wait_for(again, process, '"ready"')
            asyncio.run(settled_races(again, process, 5))
        print(f"{before[-1].size} records were signed; back and on to race 5 in {time.monotonic() - began:.0f} s")
        print((again.folder / "validator.log").read_text()[:3000])
        report, _ = read_back(again, ())
        assert report.is_ok, report.defects
        after = {point.size: point.note for point in asyncio.run(signed_states(again))}
        assert after.items() >= {(point.size, point.note) for point in before}
