"""The node's image and compose file on a real engine: built, brought up, raced in, killed, upgraded, saved, restored.

Needs a Docker engine with the two base images, and Compose 2.15 or newer (`ARENA_PROVE_COMPOSE` names another command).
The miner is a container that knows the published door and the chain's address alone.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arena.chain.keys import keypair_signer
from tests.neurons.arena_stand import build_small_catalogue

ROOT = Path(__file__).parents[2]
PROJECT = "arena-prove"
COMPOSE = shlex.split(os.environ.get("ARENA_PROVE_COMPOSE", "docker compose"))
VALIDATOR = keypair_signer("//Bob").hotkey
CONTAINER_USER = 10001
CHAIN_PORT = "9103"
RACED_S = 600.0


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout.strip()


def why_not() -> str:
    """Why the proof can't run here; "" where it can."""
    try:
        docker("info")
        for image in ("python:3.11-slim-bookworm", "postgres:18.1-bookworm"):
            if not docker("images", "-q", image):
                docker("pull", "-q", image)
        subprocess.run([*COMPOSE, "version"], capture_output=True, check=True)
    except (AssertionError, OSError, subprocess.CalledProcessError) as error:
        return f"no engine with the base images and Compose: {str(error).splitlines()[0][:100]}"
    return ""


class Site:
    """A folder that holds what an operator lays beside the compose file, and the commands as typed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.env = folder, folder / "env"
        self.password = "a-password-for-a-proof"
        (folder / "password").write_text(self.password)
        (folder / "wallets").mkdir()
        (folder / "backups").mkdir()
        os.chown(folder / "backups", CONTAINER_USER, CONTAINER_USER)
        catalogue = build_small_catalogue(folder)
        services = {"validator": {"environment": {"ARENA_LOCAL_CHAIN_PORT": CHAIN_PORT}}}
        secrets = {"postgres_password": {"file": str(folder / "password")}}
        (folder / "site.json").write_text(json.dumps({"services": services, "secrets": secrets}))
        self.settings = {
            "ARENA_NETWORK": "local",
            "ARENA_POLICY": "demo",
            "ARENA_WALLET_HOTKEY": "//Bob",
            "ARENA_BIND": "0.0.0.0",  # of the engine's own network; nothing outside this host is routed to it
            "ARENA_CATALOGUE": str(catalogue),
            "ARENA_WALLETS": str(folder / "wallets"),
            "ARENA_BACKUPS": str(folder / "backups"),
            "ARENA_WORK": str(ROOT / "harness" / "agents" / "examples"),
        }

    @property
    def owner_dsn(self) -> str:
        return f"postgresql://postgres:{self.password}@postgres/arena"

    def compose(self, *words: str) -> str:
        self.env.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        files = ("-f", str(ROOT / "docker" / "compose.yaml"), "-f", str(self.folder / "site.json"))
        command = [*COMPOSE, "-p", PROJECT, "--env-file", str(self.env), *files]
        profiles = ("--profile", "node", "--profile", "miner")
        done = subprocess.run([*command, *profiles, *words], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
        return done.stdout

    def validator(self, *words: str) -> str:
        return self.compose("run", "--rm", "validator", *words)

    def miner(self, *words: str) -> str:
        return self.compose("run", "--rm", "-e", f"ARENA_NETWORK=http://validator:{CHAIN_PORT}", "miner", *words)

    def events(self) -> str:
        return self.compose("logs", "--no-color", "validator")


def state_of(service: str) -> str:
    """The id of a service's container, and how it is; "" where it does not run."""
    return docker("ps", "--filter", f"name={PROJECT}.{service}", "--format", "{{.ID}} {{.Status}}")


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    until = time.monotonic() + RACED_S
    while not holds():
        assert time.monotonic() < until, f"never {what}"
        time.sleep(5)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    if reason := why_not():
        pytest.skip(reason)
    made = Site(tmp_path)
    try:
        made.compose("build")
        yield made
    finally:
        made.compose("down", "-v")


@pytest.mark.prove
def test_a_node_in_containers_races_what_comes_through_its_door_and_outlives_kill_upgrade_and_restore(
    site: Site,
) -> None:
    assert "bubblewrap: " in site.validator("doctor")
    site.compose("up", "-d", "postgres")
    wait_for("a database", lambda: "(healthy)" in state_of("postgres"))
    migrated = site.validator("store", "migrate", "--owner-dsn", site.owner_dsn, "--hotkey", VALIDATOR)
    site.settings["ARENA_DATABASE_DSN"] = migrated.partition("ARENA_DATABASE_DSN=")[2].split()[0]
    gateway = docker("network", "inspect", f"{PROJECT}_default", "-f", "{{(index .IPAM.Config 0).Gateway}}")
    site.settings["ARENA_PUBLIC_ENDPOINT"] = f"http://{gateway}:9100"
    site.compose("up", "-d", "validator")
    wait_for("on chain", lambda: '"event":"address published"' in site.events())
    submitted = site.miner("submit", "/work/model_loop.py", "--wallet.hotkey", "//Ada", "--register", "--yes")
    assert f"at http://{gateway}:9100" in submitted
    wait_for("racing", lambda: '"happened":"ItemsEnqueued"' in site.events())
    node = state_of("validator").split()[0]
    docker("kill", node)
    docker("start", node)
    wait_for("settled", lambda: '"stage":"settled"' in site.events())
    site.compose("build", "--build-arg", "COMMIT=next")
    site.compose("up", "-d", "--force-recreate", "validator")  # another image on the same volumes
    wait_for("up again", lambda: "(healthy)" in state_of("validator"))
    assert "all is well" in docker("exec", state_of("validator").split()[0], "arena", "validator", "status")
    site.validator("store", "backup", "--out", "/backups/one", "--owner-dsn", site.owner_dsn)
    site.validator("store", "restore", "/backups/one", "--state-dir", "/state/again", "--hotkey", VALIDATOR)
    assert "ok: " in site.validator("records", "verify", "--state-dir", "/state/again")
