"""A two-node Ray cluster keeps the executor's promise, and commands give the same bytes on it, a node killed or not."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from arena.store.objects import folder_location
from foundation.errors import ArenaError
from neurons.cli.app import main
from neurons.cluster.ray_executor import open_cluster, require_no_keys, validator_program
from tests.neurons.cluster_stand import apart
from tests.training.firehose_export import write_real_day

needs_a_cluster = pytest.mark.usefixtures("ray_here")


def folder_sha256(folder: Path) -> str:
    """One hash of every file and its name."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed export of 120 trajectories in 24 shards."""
    return write_real_day(tmp_path_factory.mktemp("day"), 120)


@needs_a_cluster
def test_a_cluster_keeps_the_promise_of_the_port_and_a_killed_node_costs_nothing(tmp_path: Path) -> None:
    found = apart(tmp_path, "contract")
    assert isinstance(found, dict)
    assert found["slots"] == 2 and found["order"] == list(range(30)) and found["taken"] <= 4
    assert found["error"] == ["V2140", "job 3"] and found["died"][0] == "V2052"
    assert found["claimed"] == [1.0, 100 << 20] and found["claimed_all"] is True
    assert found["killed"] == [job * job for job in range(30)] and found["lost"] >= 1


@needs_a_cluster
def test_a_cluster_of_this_machine_begins_and_ends_with_the_command_and_one_that_is_not_there_is_said(
    day: Path, tmp_path: Path
) -> None:
    check = ["records", "verify", "--export", str(day), "--json"]
    found = apart(tmp_path, "alone", *check, "--cluster", "local", "+", *check, "--cluster", "127.0.0.1:6379")
    assert isinstance(found, list)
    assert found[0][0] == 0 and json.loads(found[0][1])["trajectories"] == 120
    assert found[1][0] == 3 and "error[V2208]" in found[1][2]


@needs_a_cluster
def test_one_process_processes_a_cluster_and_a_killed_node_give_one_digest(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(out: str) -> list[str]:
        state = tmp_path / f"{out}.state"  # its own counts and seals: nothing is left from the build before
        words = ["corpus", "build", day, "--out", tmp_path / out, "--rule", "coefficient_e4_min=5000"]
        words += ["--state-dir", state]
        return list(map(str, words))

    for out, workers in (("here", []), ("processes", ["--workers", "2"])):
        with pytest.raises(SystemExit) as ended:
            main([*build(out), *workers])
        assert not ended.value.code, capsys.readouterr().err
    check = ["records", "verify", "--export", str(day), "--json"]
    lines = [check, build("cluster"), ["kill", *build("killed")], check]
    found = apart(tmp_path, "commands", *" + ".join(" ".join(line) for line in lines).split())
    assert isinstance(found, list)
    assert [code for code, _, _ in found] == [0, 0, 0, 0], found
    verified = [json.loads(out) for _, out, _ in (found[0], found[3])]
    assert verified[0]["ok"] and verified[0]["trajectories"] == 120 and verified[0] == verified[1]
    digests = {out: folder_sha256(tmp_path / out) for out in ("here", "processes", "cluster", "killed")}
    assert len(set(digests.values())) == 1, digests


@needs_a_cluster
def test_a_cluster_builds_from_an_object_store_what_one_process_builds_from_the_folder(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["corpus", "build", str(day), "--out", str(tmp_path / "here"), "--rule", "coefficient_e4_min=5000"])
    assert not ended.value.code, capsys.readouterr().err
    shutil.copytree(day, tmp_path / "there")
    stored = ["corpus", "build", folder_location(tmp_path / "there"), "--rule", "coefficient_e4_min=5000"]
    stored += ["--out", str(tmp_path / "stored"), "--state-dir", str(tmp_path / "state"), "--cluster", "local"]
    ((code, _, told),) = apart(tmp_path, "alone", *stored)
    assert code == 0, told
    assert folder_sha256(tmp_path / "here") == folder_sha256(tmp_path / "stored")


@pytest.fixture
def evaluation(tmp_path: Path) -> Callable[..., list[str]]:
    """The words that evaluate the scripted expert into a report of this name."""

    def words(out: str, *more: object) -> list[str]:
        report, state = tmp_path / f"{out}.json", tmp_path / "state"
        set_of_30 = ["--problems", "s1", "--decode", "turns_max=4", "--parallel", "3"]
        asked = ["eval", "scripted", "--model", "scripted-expert", *set_of_30, "--out", report, "--state-dir", state]
        return list(map(str, [*asked, *more]))

    return words


def episodes_of(report: Path) -> list[bytes]:
    return sorted(report.with_suffix(".episodes.jsonl").read_bytes().splitlines())


@needs_a_cluster
def test_a_cluster_evaluates_as_one_process_does_a_node_killed_or_not(
    evaluation: Callable[..., list[str]], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(evaluation("here"))
    assert not ended.value.code
    lines = [evaluation("cluster"), ["kill", *evaluation("killed")]]
    found = apart(tmp_path, "commands", *" + ".join(" ".join(line) for line in lines).split())
    assert isinstance(found, list)
    assert [code for code, _, _ in found] == [0, 0], found
    reports = [tmp_path / f"{out}.json" for out in ("here", "cluster", "killed")]
    assert len({report.read_bytes() for report in reports}) == 1
    assert episodes_of(reports[0]) == episodes_of(reports[1]) == episodes_of(reports[2])


def test_a_cluster_is_refused_beside_a_key_and_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wallets = tmp_path / "wallets"
    (wallets / "v" / "hotkeys").mkdir(parents=True)
    (wallets / "v" / "coldkeypub.txt").write_text("{}")
    (wallets / "v" / "hotkeys" / "defaultpub.txt").write_text("{}")
    require_no_keys(wallets, tmp_path, 0, ())
    require_no_keys(tmp_path / "none", tmp_path, 0, ())
    key = wallets / "v" / "hotkeys" / "default"
    key.write_text("{}")
    monkeypatch.setenv("ARENA_WALLET_PATH", str(wallets))
    with pytest.raises(ArenaError, match="V2207") as caught, open_cluster("local"):
        pass
    assert caught.value.failure.detail == str(key)
    with pytest.raises(SystemExit) as ended:
        main(["records", "verify", "--export", str(tmp_path), "--cluster", "local"])
    shown = capsys.readouterr().err
    assert ended.value.code == 3 and "error[V2207]" in shown and str(key) in shown
    assert "ray" not in sys.modules


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("/x/.venv/bin/python /x/.venv/bin/arena validator --state-dir y", "/x/.venv/bin/arena"),
        ("arena validator", "arena"),
        ("python3.11 -X dev -m neurons.cli.app validator", "neurons.cli.app"),
        ("python neurons/validator.py --wallet.path z --state-dir y", "neurons/validator.py"),
        ("python3 -u -m neurons.validator", "neurons.validator"),
        ("python /x/.venv/bin/arena validator status", ""),
        ("python /x/.venv/bin/arena validator --dry-run", ""),
        ("python neurons/validator.py resume", ""),
        ("arena corpus build validator", ""),
        ("python -m pytest neurons/validator.py", ""),
        ("vim neurons/validator.py", ""),
        ("", ""),
    ],
)
def test_a_command_line_that_starts_a_validator_is_known(line: str, program: str) -> None:
    assert validator_program(line.split()) == program
