"""A two-node Ray cluster keeps the executor's promise, and commands give the same bytes in one process, in several, on
a cluster, and with a node killed. What needs a cluster is run by `make prove`, which installs Ray."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import msgspec
import pytest

from arena.evaluate import EvaluatePorts
from arena.store.objects import folder_location
from foundation.codes import HOST_UNLIKE
from foundation.errors import ArenaError
from foundation.executors import HERE, ProcessExecutor
from harness.agents.registry import reference_agent
from neurons.cli.app import main
from neurons.cluster.episodes import AgentEpisodes, Place, alike_of, by_executor, run_elsewhere, stage_episodes
from neurons.cluster.ray_executor import is_validator, open_cluster, require_no_keys
from neurons.practice.opening import open_bench
from neurons.practice.run import Asked, run_here
from neurons.settings.inputs import prepare_suite
from neurons.settings.settings import Settings, resolve
from neurons.worker.ports import open_local_ports
from tests.neurons.cluster_stand import apart
from tests.prove.test_corpus_scale import folder_sha256
from tests.training.firehose import write_real_day
from training.model import Decode
from training.recipe import Recipe
from training.rollouts.rollout import jobs_of

SOURCE = reference_agent("baseline:scripted-expert").source
TOKENIZER = Path(__file__).parents[2] / "training" / "recipes" / "smoke" / "tokenizer"
EPISODE = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=2_048, turns_max=12, context_tokens_max=32_768)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed export of 120 trajectories in 24 shards."""
    return write_real_day(tmp_path_factory.mktemp("day"), 120)


@pytest.mark.prove
@pytest.mark.usefixtures("ray_here")
def test_a_cluster_keeps_the_promise_of_the_port_and_a_killed_node_costs_nothing(tmp_path: Path) -> None:
    found = apart(tmp_path, "contract")
    assert isinstance(found, dict)
    assert found["slots"] == 2 and found["order"] == list(range(30)) and found["taken"] <= 4
    assert found["error"] == ["V2120", "job 3"] and found["died"][0] == "V2052"
    assert found["claimed"] is True
    assert found["killed"] == [job * job for job in range(30)] and found["lost"] >= 1


def run_command(*words: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    assert not ended.value.code, words


@pytest.mark.prove
@pytest.mark.usefixtures("ray_here")
def test_one_process_processes_a_cluster_and_a_killed_node_give_one_corpus(day: Path, tmp_path: Path) -> None:
    def build(out: str, export: object = day) -> list[object]:
        state = tmp_path / f"{out}.state"  # its own counts and seals: nothing is left from the build before
        rule = ("--rule", "coefficient_e4_min=5000")
        return ["corpus", "build", export, "--out", tmp_path / out, *rule, "--state-dir", state]

    run_command(*build("here"))
    run_command(*build("processes"), "--workers", "2")
    check = ["records", "verify", "--export", day, "--json"]
    lines = [*check, "+", *build("cluster"), "+", "kill", *build("killed"), "+", *build("stored", folder_location(day))]
    found = apart(tmp_path, "commands", *lines)
    assert isinstance(found, list) and {code for code, _, _ in found} == {0}, found
    verified = json.loads(found[0][1])
    assert verified["ok"] and verified["trajectories"] == 120
    digests = {out: folder_sha256(tmp_path / out) for out in ("here", "processes", "cluster", "killed", "stored")}
    assert len(set(digests.values())) == 1, digests


@pytest.mark.prove
@pytest.mark.usefixtures("ray_here")
def test_a_cluster_evaluates_a_model_and_an_agent_as_one_process_does_a_node_killed_or_not(tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(SOURCE)
    common = ["--policy", "demo", "--problems", "s1", "--label", "it", "--state-dir", tmp_path / "state"]
    common += ["--decode", "turns_max=4", "--parallel", "3"]

    def line(out: str, target: object) -> list[object]:
        return ["eval", target, *common, "--out", tmp_path / f"{out}.json"]

    model = ("scripted", "--model", "scripted-expert")
    run_command(*line("here", "scripted"), *model[1:])
    run_command(*line("agent", agent))
    killed = ["+", "kill", *line("killed", "scripted"), *model[1:], "+", *line("agent_there", agent)]
    found = apart(tmp_path, "commands", *line("cluster", "scripted"), *model[1:], *killed)
    assert isinstance(found, list) and {code for code, _, _ in found} == {0}, found
    reports = [tmp_path / f"{out}.json" for out in ("here", "cluster", "killed")]
    assert len({report.read_bytes() for report in reports}) == 1
    lines = [sorted(one.with_suffix(".episodes.jsonl").read_bytes().splitlines()) for one in reports]
    assert len(lines[0]) == 30 and lines[0] == lines[1] == lines[2]
    agents = [json.loads((tmp_path / f"{name}.json").read_bytes()) for name in ("agent", "agent_there")]
    for report in agents:
        report["spent"].pop("episode_ms")  # a clock's
    assert agents[0] == agents[1]


def test_a_cluster_is_refused_beside_a_key_and_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wallets = tmp_path / "wallets"
    (wallets / "v" / "hotkeys").mkdir(parents=True)
    (wallets / "v" / "coldkeypub.txt").write_text("{}")
    (wallets / "v" / "hotkeys" / "defaultpub.txt").write_text("{}")
    monkeypatch.setenv("ARENA_WALLET_PATH", str(wallets))
    monkeypatch.setattr("psutil.process_iter", lambda names: ())  # other tests may run validators
    require_no_keys(tmp_path)
    key = wallets / "v" / "hotkeys" / "default"
    key.write_text("{}")
    with pytest.raises(ArenaError, match="V2207") as caught, open_cluster("local"):
        pass
    assert caught.value.failure.detail == str(key)
    with pytest.raises(SystemExit) as ended:
        main(["records", "verify", "--export", str(tmp_path), "--cluster", "local"])
    shown = capsys.readouterr().err
    assert ended.value.code == 3 and "error[V2207]" in shown and str(key) in shown
    assert "ray" not in sys.modules


def test_a_command_line_that_starts_a_validator_is_known() -> None:
    for line in ("/x/bin/python /x/bin/arena validator --state-dir y", "python neurons/validator.py --wallet.path z"):
        assert is_validator(line.split())
    for line in ("python /x/bin/arena validator status", "python -m pytest neurons/validator.py"):
        assert not is_validator(line.split())


# -- an agent's and a model's episodes


@pytest.fixture
def places(arena_base: Path, small_catalogue: Path) -> tuple[Path, Path]:
    """State folder and index."""
    return arena_base / "cluster-state", small_catalogue


def flags_of(places: tuple[Path, Path]) -> tuple[tuple[str, object], ...]:
    return (("catalogue_dir", places[1]), ("policy", "demo"), ("state_dir", places[0]))


def settings_of(places: tuple[Path, Path]) -> Settings:
    return resolve(dict(flags_of(places))).settings


@pytest.fixture
def ports(places: tuple[Path, Path]) -> EvaluatePorts:
    return dataclasses.replace(open_local_ports(settings_of(places)), judges=())  # as `arena eval` asks for them


@pytest.fixture
def asked(ports: EvaluatePorts, places: tuple[Path, Path]) -> list[Asked]:
    return [(problem, ports) for problem in prepare_suite(settings_of(places), ports.policy)[:5]]


@pytest.fixture
def episodes(places: tuple[Path, Path], ports: EvaluatePorts) -> AgentEpisodes:
    return AgentEpisodes(source=SOURCE, place=Place(flags=flags_of(places), alike=alike_of(ports)))


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


def recipe_of(stage: str, text: str) -> Recipe:
    whole = f'name = "r"\nstage = "{stage}"\nmodel = "m"\nparent = "p"\ntokenizer = "{TOKENIZER}"\n{text}'
    return msgspec.structs.replace(msgspec.toml.decode(whole, type=Recipe), decode=EPISODE)


def test_rollouts_run_in_processes_as_in_this_one_by_tokens_and_of_a_teacher(
    places: tuple[Path, Path], asked: list[Asked]
) -> None:
    from tests.training.vllm_double import VllmDouble, serve
    from training.model import TurnSample
    from training.models.render import Qwen3Codec
    from training.samplers.vllm import VllmSampler

    bench, jobs = open_bench(settings_of(places)), jobs_of([problem for problem, _ in asked], 2, 3)
    codec = Qwen3Codec(TOKENIZER)
    call = '<tool_call>\n{"name": "terminate", "arguments": {"status": "failure"}}\n</tool_call>'
    ids = (*codec.tokenizer.encode(call), codec.stop_id)
    said = TurnSample(token_ids=ids, logprobs=(-0.5,) * len(ids), finish="stop")
    place = Place(flags=flags_of(places), alike=alike_of(bench))
    with serve(VllmDouble(lambda *turn: said)) as url:
        here = list(bench.sample(jobs, VllmSampler(url, "base", codec), codec, EPISODE, 4))
        sampled = stage_episodes(recipe_of("rejection", f'sampler = "{url}"\nsampler_model = "base"\n'), place)
        assert list(by_executor(3, sampled, ProcessExecutor(2))(jobs)) == here
    assert all(line.rollout is not None and line.result.steps == 1 for line in here)
    taught = stage_episodes(recipe_of("teacher", 'teacher = "scripted"\n'), place)
    one, two = ([*by_executor(3, taught, executor)(jobs)] for executor in (HERE, ProcessExecutor(2)))
    assert one == two and [line.result.is_success for line in one] == [True] * len(jobs)
