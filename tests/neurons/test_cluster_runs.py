"""`arena run` and a stage's rollouts give the same bytes in one process, in several, on a cluster, and with a node
killed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from arena.evaluate import EvaluatePorts
from foundation.codes.names import HOST_UNLIKE
from foundation.errors import ArenaError
from foundation.executors.port import HERE
from foundation.executors.processes import ProcessExecutor
from harness.agents.registry import reference_agent
from neurons.cli.app import main
from neurons.cluster.episodes import (
    AgentEpisodes,
    EndpointEpisodes,
    SampledEpisodes,
    bench_alike,
    by_executor,
    place_of,
    ports_alike,
    run_elsewhere,
    stage_episodes,
)
from neurons.practice.opening import open_bench, open_settings
from neurons.practice.run import Asked, practice_set, run_here
from neurons.worker.ports import open_local_ports
from tests.neurons.cluster_stand import apart
from training.model import Decode
from training.recipe import Recipe, parse_recipe
from training.rollouts.rollout import Job, jobs_of
from training.run_context import RunContext

needs_a_cluster = pytest.mark.usefixtures("ray_here")
SOURCE = reference_agent("baseline:scripted-expert").source
Ended = Callable[..., tuple[int, str, str]]


@pytest.fixture
def places(arena_base: Path, small_catalogue: Path) -> tuple[Path, Path]:
    """State folder and index."""
    return arena_base / "cluster-state", small_catalogue


@pytest.fixture
def ports(places: tuple[Path, Path]) -> Iterator[EvaluatePorts]:
    with open_local_ports(open_settings(places[1], "demo", places[0])) as opened:
        yield opened


@pytest.fixture
def asked(ports: EvaluatePorts, tmp_path: Path) -> list[Asked]:
    return [(problem, ports) for problem in practice_set(tmp_path, ports.catalogue)[:5]]


@pytest.fixture
def episodes(places: tuple[Path, Path], ports: EvaluatePorts) -> AgentEpisodes:
    return AgentEpisodes(source=SOURCE, place=place_of(places[1], "demo", places[0], ports_alike(ports)))


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

    plain = bodies(run_here(SOURCE, asked, 1))
    assert [name for name, _, _ in plain] == [problem.problem_id for problem, _ in asked]
    assert bodies(run_here(SOURCE, asked, 2)) == plain
    assert bodies(run_elsewhere(episodes, asked[:3], ProcessExecutor(2))) == plain[:3]
    assert bodies(run_elsewhere(episodes, asked[:2], HERE)) == plain[:2]


def test_a_machine_with_another_index_policy_or_jail_runs_nothing(asked: list[Asked], episodes: AgentEpisodes) -> None:
    for place in range(3):
        other = tuple("f" * 64 if number == place else one for number, one in enumerate(episodes.place.alike))
        unlike = msgspec.structs.replace(episodes, place=msgspec.structs.replace(episodes.place, alike=other))
        with pytest.raises(ArenaError, match="where the work is ffff") as caught:
            list(run_elsewhere(unlike, asked[:1], HERE))
        assert caught.value.failure.code == HOST_UNLIKE


@needs_a_cluster
def test_a_cluster_runs_an_agent_as_one_process_does(places: tuple[Path, Path], tmp_path: Path, ended: Ended) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(SOURCE)
    state, catalogue = places

    line = ["run", agent, "--count", "12", "--json", "--state-dir", state, "--catalogue", catalogue]
    code, out, _ = ended(*line)
    assert code == 0
    ((code, there, told),) = apart(tmp_path, "commands", *line)
    assert code == 0, told
    rows = [[(row["problem_id"], row["body_sha256"]) for row in json.loads(text)] for text in (out, there)]
    assert len(rows[0]) == 12 and rows[0] == rows[1]


@needs_a_cluster
def test_a_cluster_evaluates_an_agent_as_one_process_does(
    places: tuple[Path, Path], tmp_path: Path, ended: Ended
) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(SOURCE)

    def line(name: str) -> list[object]:
        here = ["--state-dir", places[0], "--out", tmp_path / f"{name}.json", "--label", "it"]
        return ["eval", agent, "--policy", "demo", "--problems", "s1", *here]

    assert ended(*line("here"))[0] == 0
    ((code, _, told),) = apart(tmp_path, "commands", *line("cluster"))
    assert code == 0, told
    reports = [json.loads((tmp_path / f"{name}.json").read_bytes()) for name in ("here", "cluster")]
    for report in reports:
        report["spent"].pop("episode_ms")  # a clock's
    assert reports[0] == reports[1]


TOKENIZER = Path(__file__).parents[2] / "training" / "recipes" / "smoke" / "tokenizer"
EPISODE = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=2_048, turns_max=12, context_tokens_max=32_768)


def recipe_of(stage: str, text: str) -> Recipe:
    whole = f'name = "r"\nstage = "{stage}"\nmodel = "m"\nparent = "p"\ntokenizer = "{TOKENIZER}"\n{text}'
    return msgspec.structs.replace(parse_recipe(whole, "recipe"), decode=EPISODE)


@pytest.fixture
def bench(places: tuple[Path, Path]) -> RunContext:
    return open_bench(open_settings(places[1], "demo", places[0]))


@pytest.fixture
def jobs(asked: list[Asked]) -> list[Job]:
    return jobs_of([problem for problem, _ in asked], 2, 3)


@pytest.fixture
def sampled(bench: RunContext, places: tuple[Path, Path]) -> SampledEpisodes:
    """Rollouts by tokens of the scripted model."""
    place = place_of(places[1], "demo", places[0], bench_alike(bench))
    made = stage_episodes(recipe_of("rejection", 'sampler = "scripted"\nsampler_model = "scripted-expert"\n'), place)
    assert isinstance(made, SampledEpisodes)
    return made


def here(sampled: SampledEpisodes, bench: RunContext, jobs: list[Job]) -> list[bytes]:
    """The episodes as this process runs them without any executor."""
    from training.models.render import Qwen3Codec
    from training.samplers.scripted import ScriptedSampler

    codec = Qwen3Codec(TOKENIZER)
    lines = list(bench.sample(jobs, ScriptedSampler(codec), codec, EPISODE, 4))
    assert all(line.rollout is not None for line in lines)
    return [msgspec.json.encode(line) for line in lines]


def test_rollouts_run_in_processes_as_in_this_one_by_tokens_and_of_a_teacher(
    sampled: SampledEpisodes, bench: RunContext, jobs: list[Job]
) -> None:
    lines = by_executor(3, sampled, ProcessExecutor(2))(jobs)
    assert [msgspec.json.encode(line) for line in lines] == here(sampled, bench, jobs)
    taught = stage_episodes(recipe_of("teacher", 'teacher = "scripted"\n'), sampled.place)
    assert isinstance(taught, EndpointEpisodes)
    one, two = ([*by_executor(3, taught, executor)(jobs)] for executor in (HERE, ProcessExecutor(2)))
    assert one == two and [line.result.is_success for line in one] == [True] * len(jobs)


@needs_a_cluster
def test_rollouts_on_a_cluster_whose_node_is_killed_are_those_of_one_process(
    sampled: SampledEpisodes, bench: RunContext, jobs: list[Job], tmp_path: Path
) -> None:
    packed = tmp_path / "episodes.pickle"
    packed.write_bytes(pickle.dumps((sampled, jobs)))
    found = apart(tmp_path, "rollouts", packed)
    assert isinstance(found, list)
    assert [line.encode() for line in found[0]] == here(sampled, bench, jobs)
