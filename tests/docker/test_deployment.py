"""The files for containers and services fit the product: settings, paths, commands and users, without an engine."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from neurons.cli.presenter import EXIT_INTEGRITY, EXIT_NOT_READY, EXIT_USAGE
from neurons.settings.settings import Settings
from tests.readme_blocks import unknown_options

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NODE = (DOCKER / "node.Dockerfile").read_text()


def expanded(value: str) -> str:
    """`${NAME:-default}` as its default."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_publishes_on_loopback_only_and_gets_no_engine(name: str) -> None:
    service = SERVICES[name]
    for port in service.get("ports", ()):
        assert expanded(port).startswith("127.0.0.1:"), port
    assert not any("docker.sock" in volume or "containerd" in volume for volume in service.get("volumes", ()))
    assert not service.get("privileged")
    assert "build" in service or re.search(r":v?\d+\.\d+", service["image"]), "an image is pinned to a version"


@pytest.mark.parametrize("name", ["validator", "miner"])
def test_what_a_service_sets_are_settings_and_its_command_starts_dry(name: str, tmp_path: Path) -> None:
    environment = {key: expanded(str(value)) for key, value in SERVICES[name]["environment"].items()}
    known = {f"ARENA_{field.upper()}" for field in Settings.model_fields} | {"OPENAI_BASE_URL", "OPENAI_API_KEY"}
    assert set(environment) <= known
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ARENA_", "OPENAI_"))}
    command = [sys.executable, "-m", "neurons.cli.app", "validator", "--dry-run"]
    told = {**kept, **environment, "ARENA_STATE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=told, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "no hotkey `default`" in done.stderr, "all that a start would lack here"
    assert environment["ARENA_NETWORK"] in done.stdout


def test_the_images_copy_holds_every_package_and_runs_as_nobody_special() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    rooms = {name.partition(".")[0].rstrip("*") for name in packages} - {"arena_sdk"}  # it lies in harness/
    assert rooms == set(re.findall(r"^COPY (\w+) /src", NODE, re.MULTILINE))
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {name for line in re.findall(r"^COPY ([^-].*) /src", NODE, re.MULTILINE) for name in line.split()}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)
    final = NODE.rpartition("\nFROM ")[2]
    assert final.startswith("python:3.11")  # what agents race on, whatever the host has
    assert 0 < final.index("\nUSER arena") < final.index("\nENTRYPOINT")


def test_the_service_starts_the_installed_command_and_rests_where_a_restart_mends_nothing() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DOCKER / "systemd" / "agent-arena-validator.service")
    service = unit["Service"]
    assert service["ExecStart"].split()[:2] == ["/opt/agent-arena/.venv/bin/arena", "validator"]
    resting = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert resting == {EXIT_USAGE, EXIT_NOT_READY, EXIT_INTEGRITY}
    assert service["User"] == "arena"
    page = (ROOT / "docs" / "operations.md").read_text()
    assert str(service["WorkingDirectory"]) in page


@pytest.mark.parametrize("name", ["validator", "search", "miner"])
def test_the_process_of_the_nodes_image_has_no_right_and_its_command_exists(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"] and service["read_only"] is True
    assert "no-new-privileges:true" in service["security_opt"]
    assert "ARENA_SANDBOX" not in service.get("environment", {})  # the jail inside, never an engine beside the key
    if service["command"] != ["--help"]:
        line = " ".join(["arena", *service["command"]])
        assert not unknown_options(line)


def test_every_command_of_the_page_exists_with_its_options() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    lines = [line for part in page.split("```sh")[1:] for line in part.partition("```")[0].splitlines()[1:]]
    commands = [found[1] for line in lines if (found := re.search(r"(?:^|\.venv/bin/)(arena .+)$", line))]
    assert len(commands) > 8
    for command in commands:
        assert not unknown_options(command), command
