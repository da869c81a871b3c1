"""A disk lost at noon and last night's backup: the node goes on under its hotkey, with every record that was signed."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.store.embedded import lay_out, server_user
from arena.store.objects import folder_location
from neurons.cli.presenter import EXIT_INTEGRITY
from neurons.demo.demo import WATCH_S, DemoRun, running_validator
from tests.neurons.arena_stand import build_small_catalogue, make_run, read_back, short_folder
from tests.neurons.process_stand import postgres_of
from tests.neurons.shared_nodes_stand import Network, SharedNode, wait_for
from tests.neurons.test_shared_nodes import AGENTS, SETTLED_S, settled_by
from tests.prove.test_sleepers import settled_races
from tests.test_cli import arena

OF_THE_DISK = ("postgres", "checkpoints", "store.json", "node.json", "held")


def lose_disk(run: DemoRun, base: Path) -> DemoRun:
    """A node's folder with what another machine has of it, chain, bank and settings, and last night's backup."""
    folder = base / "again"
    shutil.copytree(run.folder, folder, ignore=shutil.ignore_patterns(*OF_THE_DISK), symlinks=True)
    restored = arena("store", "restore", str(base / "kept"), "--state-dir", str(folder))
    assert restored.returncode == 0, restored.stderr
    return replace(run, folder=folder, settings=replace(run.settings, state_dir=folder))


def keep_wal(run: DemoRun, base: Path) -> None:
    """Let the server of a run's folder archive its write-ahead log, behind a base backup of it."""
    paths, user = lay_out(run.folder, server_user()), server_user()
    (base / "wal").mkdir()
    user.own(base / "wal")
    subprocess.run(["cp", "-a", paths.data, base / "base"], check=True)
    with (paths.data / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"wal_level = replica\narchive_mode = on\narchive_command = 'cp %p {base}/wal/%f'\n")


def lose_data(run: DemoRun, base: Path) -> DemoRun:
    """Its database led back by the base backup and the archived log, whose last segment was not archived yet."""
    paths = lay_out(run.folder, server_user())
    shutil.rmtree(paths.data)
    subprocess.run(["cp", "-a", base / "base", paths.data], check=True)
    with (paths.data / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"archive_mode = off\nrestore_command = 'cp {base}/wal/%f %p'\n")
    (paths.data / "recovery.signal").touch()
    server_user().own(paths.data / "recovery.signal")
    return run


def wait_for_words(run: DemoRun, process: subprocess.Popen[bytes], words: str, times: int = 1) -> None:
    while (said := (run.folder / "validator.log").read_text()).count(words) < times:
        assert process.poll() is None, said[-2_000:]
        time.sleep(WATCH_S)


@pytest.mark.prove
@pytest.mark.parametrize("lose", [lose_disk, lose_data])
def test_a_node_goes_on_under_its_hotkey_with_every_record_that_was_signed(lose) -> None:
    with short_folder() as base:
        objects = folder_location(base / "objects")
        run = make_run(base, build_small_catalogue(base), bodies_url=objects, names=("expert", "hasty"))
        keep_wal(run, base)
        with running_validator(run) as process:
            asyncio.run(settled_races(run, process, 1))
            kept = arena("store", "backup", "--out", str(base / "kept"), "--state-dir", str(run.folder))
            assert kept.returncode == 0, kept.stderr
            asyncio.run(settled_races(run, process, 2))
            wait_for_words(run, process, "runs of an agent on a problem begin", times=3)
        with running_validator(run) as process:  # its end has signed the log as far as it got, in the third race
            wait_for_words(run, process, '"ready"')
            time.sleep(2)
            process.kill()
            process.wait()
        for each in postgres_of(run):
            each.kill()
        before = {int(path.stem): path.read_text() for path in (run.folder / "checkpoints").iterdir()}
        again = lose(run, base)
        began = time.monotonic()
        with running_validator(again) as process:
            wait_for_words(again, process, '"ready"')
            asyncio.run(settled_races(again, process, 4))
        print(f"{max(before)} records were signed; back and on to race 4 in {time.monotonic() - began:.0f} s")
        report, logs = read_back(again, ("race-000003",))
        assert report.is_ok, report.defects
        assert logs[0].settlement is not None and logs[0].settlement.state == "settled"
        after = {int(path.stem): path.read_text() for path in (again.folder / "checkpoints").iterdir()}
        assert after.items() >= before.items()


@pytest.mark.prove
def test_peers_say_what_a_restored_node_lacks_and_race_with_it_once_it_is_whole(monkeypatch) -> None:
    with short_folder() as base:
        network = Network(base, build_small_catalogue(base), races=16)
        lost, other = SharedNode(network, "//First", 50_000), SharedNode(network, "//Second", 30_000)
        lost.publish()
        submission = network.commit(AGENTS[0])
        monkeypatch.setenv("ARENA_BODIES_URL", folder_location(base / "objects"))
        with other.running() as other_process:
            with lost.running() as process:
                lost.hand_in(AGENTS[0], submission)
                wait_for("first race", lambda: bool(settled_by(other)), other, other_process, SETTLED_S)
                kept = arena("store", "backup", "--out", str(base / "kept"), "--state-dir", str(lost.folder))
                assert kept.returncode == 0, kept.stderr
                wait_for("second race", lambda: len(settled_by(lost)) > 1, lost, process, SETTLED_S)
            for name in OF_THE_DISK:
                shutil.move(lost.folder / name, base / f"gone-{name}")
            restored = arena("store", "restore", str(base / "kept"), "--state-dir", str(lost.folder))
            assert restored.returncode == 0, restored.stderr
            monkeypatch.setenv("ARENA_BODIES_URL", folder_location(lost.folder / "bodies"))  # without the log's copy
            with lost.running() as process:
                assert process.wait(60) == EXIT_INTEGRITY, lost.log()[-2_000:]
            assert "were signed and are missing" in lost.log()
            before = settled_by(lost) | settled_by(other)
            monkeypatch.setenv("ARENA_BODIES_URL", folder_location(base / "objects"))
            with lost.running() as process:
                later = lambda: bool((settled_by(lost) & settled_by(other)) - before)  # noqa: E731
                wait_for("a race with the other", later, lost, process, 2 * SETTLED_S)
