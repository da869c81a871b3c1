"""The files for containers and services fit the product: settings, paths, commands and users, without an engine."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from harness.inference.gateway import ModelUsage
from neurons.cli.presenter import EXIT_INTEGRITY, EXIT_NOT_READY, EXIT_USAGE
from neurons.health.metrics import Metrics
from neurons.settings.settings import NAMES
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
    assert service["logging"]["options"]["max-file"], "logs don't fill the disk"
    assert "build" in service or re.search(r":v?\d+\.\d+", service["image"]), "an image is pinned to a version"


@pytest.mark.parametrize("name", ["validator", "miner"])
def test_what_a_service_sets_are_settings_and_its_command_starts_dry(name: str, tmp_path: Path) -> None:
    environment = {key: expanded(str(value or "")) for key, value in SERVICES[name]["environment"].items()}
    known = {f"ARENA_{field.upper()}" for field in NAMES} | {"ARENA_CONFIG"}
    assert {key for key in environment if not key.startswith(("OPENAI_", "AWS_"))} <= known
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


def unit(name: str) -> configparser.SectionProxy:
    read = configparser.ConfigParser(interpolation=None, strict=False)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read(DOCKER / "systemd" / f"agent-arena-{name}.service")
    return read["Service"]


def test_the_service_starts_the_installed_command_and_rests_where_a_restart_mends_nothing() -> None:
    service = unit("validator")
    assert service["ExecStart"].split()[:2] == ["/opt/agent-arena/.venv/bin/arena", "validator"]
    resting = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert resting == {EXIT_USAGE, EXIT_NOT_READY, EXIT_INTEGRITY}
    assert (service["User"], service["KillMode"]) == ("arena", "mixed"), "no SIGTERM to the node's database and workers"
    assert service["WorkingDirectory"] in (ROOT / "docs" / "operations.md").read_text()
    typed = (DOCKER / "systemd" / "arena").read_text()  # the command of a person looks at what the service runs with
    named = {"User": "uid", "Group": "gid", "WorkingDirectory": "working-directory", "Environment": "setenv"}
    for field, option in {**named, "EnvironmentFile": "property=EnvironmentFile"}.items():
        assert f"--{option}={service[field]}" in typed
    assert f"ARENA_CONFIG={service['ExecStart'].split()[-1]} {service['ExecStart'].split()[0]} " in typed


def test_the_nightly_backup_removes_its_own_but_the_newest_seven(tmp_path: Path) -> None:
    nights = [f"2026-11-{day:02}T032000Z" for day in range(1, 11)]
    for name in (*nights, "2026-11-01", "before-upgrade"):
        (tmp_path / name).mkdir()
    line = unit("backup")["ExecStartPost"].replace("/var/backups/agent-arena", str(tmp_path))
    subprocess.run(shlex.split(line), check=True)
    assert {path.name for path in tmp_path.iterdir()} == {*nights[3:], "2026-11-01", "before-upgrade"}


@pytest.mark.parametrize("name", ["validator", "search", "miner"])
def test_the_process_of_the_nodes_image_has_no_right_and_its_command_exists(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"] and service["read_only"] is True
    assert "no-new-privileges:true" in service["security_opt"]
    assert "ARENA_SANDBOX" not in service.get("environment", {})  # the jail inside, never an engine beside the key
    if service["command"] != ["--help"]:
        assert not unknown_options(" ".join(["arena", *service["command"]]))


def test_every_command_of_the_page_exists_with_its_options() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    lines = [line for part in page.split("```sh")[1:] for line in part.partition("```")[0].splitlines()[1:]]
    commands = [found[1] for line in lines if (found := re.search(r"(?:^arena|run --rm validator) (.+)$", line))]
    assert len(commands) > 15
    assert not [command for command in commands if unknown_options(f"arena {command}")]


# -- every alert fires by its fault, none on a well node, and each has its runbook


ALERTS = ROOT / "docker" / "watch" / "alerts.yml"
STEP_MIN, LAST_MIN = 5, 300
DAY_MS = 86_400_000
Fault = Callable[[Metrics, int], None]  # what is wrong, and the minutes since the scrapes began


def well(metrics: Metrics, minute: int) -> None:
    """A node that takes part in a race: everything is fresh, and an episode a minute ends."""
    now_ms = minute * 60_000
    metrics.heartbeat_ms.set(now_ms)
    metrics.uid.set(3)
    metrics.permit.set(1)
    metrics.disk_free_bytes.set(50 << 30)
    metrics.race_deadline_ms.set(now_ms + 600_000)
    metrics.records.set(minute)
    metrics.checkpoint_size.set(minute)
    metrics.checkpoint_ms.set(now_ms)
    metrics.anchor_size.set(minute)
    metrics.anchor_ms.set(now_ms)
    metrics.weights_status.labels("ok").set(1)
    metrics.peers.set(4)
    metrics.queue_since_ms.labels("race").set(1)
    metrics.bank_lasts_ms.set(40 * DAY_MS)
    metrics.episodes.labels("race").inc(minute)
    metrics.unscored.labels("validator").inc(0)
    metrics.unscored.labels("upstream").inc(0)
    metrics.races_ended.labels("settled").inc(1)
    metrics.races_ended.labels("not_ours").inc(0)
    metrics.results_compared.inc(minute)
    metrics.results_differing.inc(minute // 10)
    metrics.count_usage([ModelUsage(upstream="one", model="m", requests=minute, latency_ms=2_000 * minute)])
    metrics.judge_verdicts.inc(minute)
    for _ in range(minute // STEP_MIN):
        metrics.append_seconds.observe(0.02)


def _judges_fail(metrics: Metrics, minute: int) -> None:
    metrics.judge_verdicts.reset()
    metrics.judge_requests.inc(minute)


def _episodes_stand(metrics: Metrics, minute: int) -> None:
    metrics.episodes.clear()
    metrics.episodes.labels("race").inc(7)


def _weights_fail(metrics: Metrics, minute: int) -> None:
    metrics.weights_status.clear()
    metrics.weights_status.labels("rate_limited").set(1)


def _appends_wait(metrics: Metrics, minute: int) -> None:
    for _ in range(minute):
        metrics.append_seconds.observe(45)


FAULTS: dict[str, Fault] = {
    "NodeSilent": lambda metrics, minute: metrics.heartbeat_ms.set(60_000),
    "NotRegistered": lambda metrics, minute: metrics.uid.set(-1),
    "NoPermit": lambda metrics, minute: metrics.permit.set(0),
    "ChainStandsStill": lambda metrics, minute: metrics.chain_is_stale.set(1),
    "DiskNearlyFull": lambda metrics, minute: metrics.disk_free_bytes.set(1 << 30),
    "LoopWaitsLong": lambda metrics, minute: metrics.waiting.set(2),
    "SlotRests": lambda metrics, minute: metrics.resting_slots.set(1),
    "RaceOverdue": lambda metrics, minute: metrics.race_deadline_ms.set(60_000),
    "QueueStandsStill": _episodes_stand,
    "WeightsNotSet": _weights_fail,
    "RaceNotOurs": lambda metrics, minute: metrics.races_ended.labels("not_ours").inc(minute // 200),
    "ResultsDiffer": lambda metrics, minute: metrics.results_differing.inc(minute * 0.6),
    "PeersUnderOtherRules": lambda metrics, minute: metrics.peers_skewed.set(3),
    "OwnFaults": lambda metrics, minute: metrics.unscored.labels("validator").inc(minute / 5),
    "CheckpointLate": lambda metrics, minute: (metrics.checkpoint_size.set(1), metrics.checkpoint_ms.set(60_000))[0],
    "AnchorLate": lambda metrics, minute: (metrics.anchor_size.set(1), metrics.anchor_ms.set(60_000))[0],
    "CheckpointFolderBehind": lambda metrics, minute: metrics.checkpoint_folders_behind.set(1),
    "BankRunsOut": lambda metrics, minute: metrics.bank_lasts_ms.set(2 * DAY_MS),
    "ReleaseFilesLacking": lambda metrics, minute: metrics.release_files_lacking.set(1),
    "PolicyWaits": lambda metrics, minute: metrics.policy_waits.set(1),
    "VerdictsOwed": lambda metrics, minute: metrics.owed_verdicts.set(9),
    "ModelEndpointFails": lambda metrics, minute: metrics.unscored.labels("upstream").inc(3 * minute),
    "ModelSlow": lambda metrics, minute: metrics.model_seconds.labels("one", "m").inc(90 * minute),
    "JudgeGivesNothing": _judges_fail,
    "AppendSlow": _appends_wait,
}


def series(fault: Fault, expressions: Iterable[str], up: int) -> Iterator[dict[str, str]]:
    """What Prometheus would scrape every five minutes of a node with `fault`, as far as `expressions` ask for it."""
    names = set(re.findall(r"arena_\w+", " ".join(expressions)))
    found: dict[str, list[float]] = {}
    for minute in range(0, LAST_MIN + 1, STEP_MIN):
        metrics = Metrics()
        well(metrics, minute)
        fault(metrics, minute)
        for family in metrics.registry.restricted_registry(names).collect():
            for sample in family.samples:
                if sample.name in names:
                    labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
                    found.setdefault(f"{sample.name}{{{labels}}}", []).append(sample.value)
    found['up{job="arena"}'] = [up] * (LAST_MIN // STEP_MIN + 1)
    for name, values in found.items():
        yield {"series": name, "values": " ".join(f"{value:g}" if value % 1 else str(int(value)) for value in values)}


def case(name: str, alerts: Mapping[str, str], fault: Fault, count: int, up: int = 1) -> dict[str, object]:
    """A test of promtool: each of `alerts`, given with its expression, fires at the end, `count` (0 or 1) times."""
    samples = [{"labels": "{}", "value": count}] if count else []
    fires = (f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})' for alert in alerts)
    return {
        "name": name,
        "interval": f"{STEP_MIN}m",
        "input_series": list(series(fault, alerts.values(), up)),
        "promql_expr_test": [{"expr": expr, "eval_time": f"{LAST_MIN}m", "exp_samples": samples} for expr in fires],
    }


def promtool() -> str:
    """The program: on the path, or where `make test` puts it."""
    beside = Path(sys.prefix) / "bin" / "promtool"
    found = shutil.which("promtool") or (str(beside) if beside.exists() else "")
    if not found and not os.environ.get("CI"):
        pytest.skip("no promtool here: `make test` takes it from Debian's package prometheus")
    assert found, "promtool is missing"
    return found


def rules() -> dict[str, str]:
    """The alerts' expressions by name."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def test_every_alert_fires_by_its_fault_and_none_on_a_well_node(tmp_path: Path) -> None:
    expressions = rules()
    assert set(expressions) == {*FAULTS, "NodeDown"}

    def nothing(metrics: Metrics, minute: int) -> None:
        """A well node's fault."""

    cases = [
        case("all, on a well node", expressions, nothing, 0),
        case("NodeDown, by its fault", {"NodeDown": expressions["NodeDown"]}, nothing, 1, up=0),
        *(case(f"{alert}, by its fault", {alert: expressions[alert]}, fault, 1) for alert, fault in FAULTS.items()),
    ]
    told = {"rule_files": [str(ALERTS)], "evaluation_interval": f"{STEP_MIN}m", "tests": cases}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(told))
    done = subprocess.run([promtool(), "test", "rules", str(tmp_path / "tests.yml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_runbook_and_every_metric_of_the_dashboard_exists() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    assert set(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == set(rules())
    known = {sample.name for family in _labelled().collect() for sample in family.samples}
    board = (ROOT / "docker" / "watch" / "grafana" / "dashboards" / "node.json").read_text()
    assert set(re.findall(r"arena_\w+", " ".join([board, *rules().values()]))) <= known


def _labelled() -> CollectorRegistry:
    """A registry in which each metric with labels has a sample."""
    metrics = Metrics()
    for one in vars(metrics).values():
        if names := getattr(one, "_labelnames", ()):
            one.labels(*("x" for _ in names))
    return metrics.registry
