"""`arena run` and a stage's rollouts give the same bytes in one process, in several, on a cluster, and with a node
killed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arena.evaluate import EvaluatePorts
from foundation.codes.names import HOST_UNLIKE
from foundation.errors import ArenaError
from foundation.executors.port import HERE
from foundation.executors.processes import ProcessExecutor
from harness.agents.registry import reference_agent
from neurons.cli.app import main
from neurons.cli.miner.check import miner_settings
from neurons.cluster.agent_episodes import AgentEpisodes, alike, run_elsewhere
from neurons.node.wiring import open_local_ports
from neurons.practice.content_cache import ContentCache, cached_practice
from neurons.practice.local_run import Asked, run_problems
from tests.neurons.cluster_stand import apart, missing

WHY_NOT = missing()
needs_a_cluster = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
SOURCE = reference_agent("baseline:scripted-expert").source
Ended = Callable[..., tuple[int, str, str]]


@pytest.fixture
def places(arena_base: Path, small_catalogue: Path) -> tuple[Path, Path]:
    """State folder and index."""
    return arena_base / "cluster-state", small_catalogue


@pytest.fixture
def ports(places: tuple[Path, Path]) -> Iterator[EvaluatePorts]:
    with open_local_ports(miner_settings(None, places[1], places[0]).settings) as opened:
        yield opened


@pytest.fixture
def asked(ports: EvaluatePorts, tmp_path: Path) -> list[Asked]:
    known = cached_practice(ContentCache(tmp_path / "cache", lambda line: None), ports.catalogue, 1, 20)
    return [(problem, ports) for problem in known[:5]]


@pytest.fixture
def episodes(places: tuple[Path, Path], ports: EvaluatePorts) -> AgentEpisodes:
    state, catalogue = places
    return AgentEpisodes(
        source=SOURCE,
        policy=None,
        catalogue=catalogue,
        state_dir=state,
        model_urls=(),
        model=None,
        alike=alike(ports),
    )


@pytest.fixture
def ended(capsys: pytest.CaptureFixture[str]) -> Ended:
    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            main(list(map(str, words)))
        shown = capsys.readouterr()
        return int(str(ending.value.code or 0)), shown.out, shown.err

    return call


def test_processes_run_an_agent_as_this_process_does_in_the_order_of_the_problems(
    asked: list[Asked], episodes: AgentEpisodes
) -> None:
    def bodies(rows) -> list[tuple[str, str, int | None]]:
        done = [row.evaluation for row in rows]
        return [(one.body.problem_id, one.body.body_hash(), one.score_e4) for one in done]

    no_limit = {"time_limit_s": 0.0, "clock": time.monotonic}
    plain = bodies(run_problems(SOURCE, asked, workers=1, **no_limit))
    assert [name for name, _, _ in plain] == [problem.problem_id for problem, _ in asked]
    assert bodies(run_elsewhere(episodes, asked, ProcessExecutor(2), **no_limit)) == plain
    assert bodies(run_elsewhere(episodes, asked[:2], HERE, **no_limit)) == plain[:2]


def test_after_the_time_limit_no_problem_is_handed_out(asked: list[Asked], episodes: AgentEpisodes) -> None:
    seconds = iter(range(0, 1_000, 10))
    rows = list(run_elsewhere(episodes, asked, HERE, time_limit_s=25.0, clock=lambda: float(next(seconds))))
    assert len(rows) == 2


def test_a_machine_with_another_index_policy_or_jail_runs_nothing(asked: list[Asked], episodes: AgentEpisodes) -> None:
    import msgspec

    for place, name in enumerate(("index", "policy", "jail")):
        other = tuple("f" * 64 if number == place else one for number, one in enumerate(episodes.alike))
        unlike = msgspec.structs.replace(episodes, alike=other)
        with pytest.raises(ArenaError, match=f"{name} ") as caught:
            list(run_elsewhere(unlike, asked[:1], HERE, time_limit_s=0.0, clock=time.monotonic))
        assert caught.value.failure.code == HOST_UNLIKE


@needs_a_cluster
def test_a_cluster_runs_an_agent_as_one_process_does_a_node_killed_or_not(
    places: tuple[Path, Path], tmp_path: Path, ended: Ended
) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(SOURCE)
    state, catalogue = places

    def line(name: str) -> list[object]:
        here = ["--state-dir", state, "--catalogue", catalogue, "--bodies", tmp_path / f"{name}.bodies"]
        return ["run", agent, "--count", "12", "--json", *here]

    code, out, _ = ended(*line("here"))
    assert code == 0
    words = [*line("cluster"), "+", "kill", *line("killed")]
    found = apart(tmp_path, "commands", *words)
    assert isinstance(found, list) and [one for one, _, _ in found] == [0, 0], found
    rows = [
        [(row["problem_id"], row["body_sha256"]) for row in json.loads(text)] for text in (out, *(f[1] for f in found))
    ]
    assert len(rows[0]) == 12 and rows[0] == rows[1] == rows[2]
    bodies = [
        {path.name: path.read_bytes() for path in (tmp_path / f"{name}.bodies").iterdir()}
        for name in ("here", "cluster", "killed")
    ]
    assert bodies[0] == bodies[1] == bodies[2]


def test_a_recording_and_workers_are_of_one_process_and_a_key_keeps_a_run_at_home(
    places: tuple[Path, Path], tmp_path: Path, ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(SOURCE)
    here = ["--state-dir", places[0], "--catalogue", places[1], "--count", "2", "--cluster", "local"]
    for words in (["--workers", "2"], ["--record", tmp_path / "r.jsonl"], ["--replay", tmp_path / "r.jsonl"]):
        assert ended("run", agent, *here, *words)[0] == 2
    key = tmp_path / "wallets/v/hotkeys/default"
    key.parent.mkdir(parents=True)
    key.write_text("{}")
    monkeypatch.setenv("ARENA_WALLET_PATH", str(tmp_path / "wallets"))
    code, _, told = ended("run", agent, *here)
    assert code == 3 and "error[V2207]" in told and str(key) in told
