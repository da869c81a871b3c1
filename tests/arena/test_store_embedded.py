"""The embedded server's life: started, shared, killed, adopted, recovered, refused."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.chain.keys import keypair_signer
from arena.store.embedded import is_running, start_embedded
from foundation.errors import ArenaError
from tests.postgres_stand import start_new

ALICE = keypair_signer("//Alice")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """A short, private folder; whatever server still runs in it is stopped at the end."""
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    yield folder
    if is_running(folder):
        start_embedded(folder).stop()
    shutil.rmtree((folder / "postgres").resolve(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def test_passwords_and_folders_are_private_and_survive_a_restart(state_dir: Path) -> None:
    server = start_embedded(state_dir)
    dsn = server.dsn_for("5hotkey")
    home = (state_dir / "postgres").resolve()
    assert stat.S_IMODE((home / "secrets.json").stat().st_mode) == 0o600
    for folder in ("data", "socket"):
        assert stat.S_IMODE((home / folder).stat().st_mode) == 0o700
    rules = [line for line in (home / "data" / "pg_hba.conf").read_text().splitlines() if not line.startswith("#")]
    assert rules == ["local all all scram-sha-256"]
    server.stop()
    again = start_embedded(state_dir)
    assert again.dsn_for("5hotkey") == dsn
    again.stop()
    (home / "secrets.json").unlink()
    with pytest.raises(ArenaError, match=r"V2020.*holds a cluster but .*secrets.json is missing"):
        start_embedded(state_dir)
    (home / "data").rename(home / "old")
    (home / "data").touch()
    with pytest.raises(ArenaError, match=r"V2020.*data exists and is not a folder of user"):
        start_embedded(state_dir)
    (home / "data").unlink()


@needs_root
def test_a_state_folder_behind_a_private_one_works(state_dir: Path) -> None:
    private = state_dir / "home"
    private.mkdir(mode=0o700)
    state_dir.chmod(0o700)
    server = start_embedded(private / "node")
    far = (private / "node" / "postgres").resolve()
    assert not far.is_relative_to(state_dir)
    assert stat.S_IMODE(private.stat().st_mode) == 0o700  # nobody's folder was opened
    server.stop()
    again = start_embedded(private / "node")
    assert (far / "data" / "PG_VERSION").exists()
    again.stop()
    shutil.rmtree(far)


def test_a_pid_file_that_names_an_unrelated_process_does_not_stop_a_start(state_dir: Path) -> None:
    server = start_new(state_dir)
    data = (state_dir / "postgres" / "data").resolve()
    pid_file = data / "postmaster.pid"
    left = pid_file.read_text().splitlines()
    facts = pid_file.stat()
    server.stop()
    # a process of the server's own user, which Postgres itself would take for the old server
    with subprocess.Popen(["sleep", "60"], user=facts.st_uid) as unrelated:
        pid_file.write_text("\n".join([str(unrelated.pid), *left[1:]]) + "\n")
        os.chown(pid_file, facts.st_uid, facts.st_gid)
        pid_file.chmod(0o600)
        assert not is_running(state_dir)
        again = start_embedded(state_dir)
        assert unrelated.poll() is None
        unrelated.kill()
    assert again.pid != unrelated.pid
    again.stop()


def test_a_server_that_will_not_start_is_a_coded_failure_that_names_the_log(state_dir: Path) -> None:
    start_new(state_dir).stop()
    home = (state_dir / "postgres").resolve()
    (home / "data" / "postgresql.auto.conf").write_text("shared_buffers = nonsense\n")
    with pytest.raises(ArenaError, match=r"V2020.*server\.log.*nonsense|V2020.*server\.log.*FATAL"):
        start_embedded(state_dir)
