"""Recipes: every key has a name, a misspelt one is told its nearest, and the hash says what a run was told to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from tests.training.stock import RECIPES
from training.models.estimate import (
    EPISODE_TOKENS,
    RunEstimate,
    Work,
    count_adapter,
    count_parameters,
    estimate_run,
    read_shape,
)
from training.recipe import ALL_LINEAR, ATTENTION, Recipe, parse_recipe, read_recipe, require_runnable

GOLDENS = [
    json.loads(line) for line in Path(__file__).with_name("recipe_goldens.jsonl").read_text("utf-8").splitlines()
]
BASE = 'name = "x"\nstage = "sft"\nmodel = "m"\n'
QWEN3_4B = {
    "hidden_size": 2_560,
    "num_hidden_layers": 36,
    "vocab_size": 151_936,
    "intermediate_size": 9_728,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": True,
}


def test_defaults_are_the_papers() -> None:
    recipe = parse_recipe(BASE)
    assert recipe.data.tokens_max == 14_336  # B.1
    assert (recipe.samples, recipe.decode.temperature, recipe.decode.top_p, recipe.decode.turns_max) == (
        8,
        0.9,
        0.95,
        8,
    )
    assert recipe.data.rollout_share == 0.5  # B.3
    assert recipe.kto.beta == 0.02 and recipe.guards.emission_min == 0.9  # B.5
    assert (recipe.grpo.problems_per_step, recipe.grpo.samples, recipe.grpo.beta) == (8, 6, 0.2)  # B.6, v18
    assert recipe.decode.context_tokens_max == 32_768
    assert recipe.lora.dropout == 0.0


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_smoke_recipe_is_one_of_its_stage(path: Path) -> None:
    assert read_recipe(path).stage == path.stem


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        (BASE + "[optim]\nlearning_rate = 1.0\n", ""),
        (BASE + "[optim]\nstep_max = 1\n", "steps_max"),
        (BASE + "[data]\ntoken_max = 1\n", "tokens_max"),
        (BASE + 'parrent = "x"\n', "parent"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(text: str, nearest: str) -> None:
    with pytest.raises(ArenaError) as wrong:
        parse_recipe(text, "r.toml")
    assert wrong.value.failure.code == "V2120" and "r.toml" in wrong.value.failure.detail
    assert (f"did you mean {nearest!r}" in wrong.value.failure.detail) == bool(nearest)


def overlay(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text, "utf-8")
    return folder / f"{next(iter(texts))}.toml"


def test_an_overlay_changes_what_it_names_and_keeps_the_rest(tmp_path: Path) -> None:
    path = overlay(
        tmp_path,
        top='extends = "mid.toml"\n[optim]\nlr = 5e-7\n',
        mid='extends = "low.toml"\nseed = 3\n[optim]\nlr = 1e-6\nsteps_max = 4\n[lora]\ntargets = ["q_proj"]\n',
        low=BASE + 'tokenizer = "a \\"b\\" \\\\ é"\n[optim]\nlr = 1e-5\nis_bf16 = false\n[data]\ndev = ["d"]\n',
    )
    recipe = read_recipe(path)
    assert (recipe.optim.lr, recipe.optim.steps_max, recipe.optim.is_bf16) == (5e-7, 4, False)
    assert (recipe.seed, recipe.tokenizer, recipe.data.dev) == (3, 'a "b" \\ é', ("d",))
    assert recipe.lora.targets == ("q_proj",)


def test_an_overlay_may_lie_in_a_folder_below_what_it_extends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").mkdir()
    overlay(tmp_path, top='extends = "low.toml"\nseed = 3\n', low=BASE)
    path = overlay(tmp_path / "small", top='extends = "../top.toml"\n[optim]\nsteps_max = 4\n')
    recipe = read_recipe(path)
    assert (recipe.seed, recipe.optim.steps_max) == (3, 4)
    monkeypatch.chdir(tmp_path / "small")
    assert read_recipe(Path("top.toml")) == recipe


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('extends = "low.toml"\n[optim]\nstep_max = 1\n', "did you mean 'steps_max'?"),
        ('extends = "low.toml"\nparrent = "x"\n', "did you mean 'parent'?"),
        ('extends = "low.toml"\n[grpo]\nsamples = 1\n', "grpo.samples = 1"),
        ('extends = "low.toml"\noptim = 3\n', "optim = 3"),
        ('extends = "low.toml"\n[optim]\nlr = inf\n', "optim.lr = inf"),
        ('extends = "absent.toml"\n', "absent.toml"),
        ('extends = "top.toml"\n', "leads back to top.toml"),
        ('extends = "../absent.toml"\n', "absent.toml"),
        ('extends = "../../low.toml"\n', "a file beside it, or ../NAME, is expected"),
        ('extends = "sub/low.toml"\n', "a file beside it, or ../NAME, is expected"),
        ('extends = "/low.toml"\n', "a file beside it, or ../NAME, is expected"),
        ("extends = 3\n", "extends = 3"),
    ],
)
def test_an_overlay_is_held_to_the_keys_and_bounds_of_a_recipe(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ArenaError) as wrong:
        read_recipe(overlay(tmp_path, top=text, low=BASE))
    assert wrong.value.failure.code == "V2120"
    assert "top.toml" in wrong.value.failure.detail or "absent.toml" in wrong.value.failure.detail
    assert said in wrong.value.failure.detail


@pytest.mark.parametrize(
    "text",
    ["name = ", BASE.replace("sft", "distil"), BASE + "samples = 1.5\n", 'name = "x"\n', BASE + "[lora]\nr = true\n"],
)
def test_what_is_no_recipe_is_refused_with_its_code(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(text, "utf-8")
    with pytest.raises(ArenaError) as wrong:
        read_recipe(tmp_path / "r.toml")
    assert wrong.value.failure.code == "V2120"


def test_a_missing_file_and_one_that_is_no_text_are_refused_alike(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    for name in ("b.toml", "absent.toml"):
        with pytest.raises(ArenaError) as wrong:
            read_recipe(tmp_path / name)
        assert wrong.value.failure.code == "V2120"


def test_the_hash_is_of_what_is_said_and_not_of_how() -> None:
    one, spaced, other = (
        parse_recipe(BASE),
        parse_recipe(f"# note\n{BASE}\nseed = 0\n"),
        parse_recipe(BASE + "seed = 1\n"),
    )
    assert one.recipe_sha256 == spaced.recipe_sha256 != other.recipe_sha256


def detail(text: str) -> str:
    with pytest.raises(ArenaError) as wrong:
        parse_recipe(text, "r.toml")
    assert wrong.value.failure.code == "V2120"
    return wrong.value.failure.detail


@pytest.mark.parametrize("line", GOLDENS, ids=lambda line: line["name"])
def test_bounds_change_no_recipe_that_was_ever_shipped(line: dict[str, str]) -> None:
    """Their hashes are in lineages: taken before there were bounds."""
    assert parse_recipe(line["text"]).recipe_sha256 == line["recipe_sha256"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("parallel = 0", "parallel = 0: Expected `int` >= 1"),
        ("samples = 0", "samples = 0: Expected `int` >= 1"),
        ("sample_rows = -1", "sample_rows = -1: Expected `int` >= 1"),
        ("seed = -1", "seed = -1: Expected `int` >= 0"),
        ("[kto]\nemission_every_steps = 0", "kto.emission_every_steps = 0: Expected `int` >= 1"),
        ("[kto]\nbeta = 0.0", "kto.beta = 0.0: Expected `float` > 0.0"),
        ("[grpo]\nproblems_per_step = 0", "grpo.problems_per_step = 0: Expected `int` >= 1"),
        ("[grpo]\nsamples = 1", "grpo.samples = 1: Expected `int` >= 2"),
        ("[optim]\nbatch_rows = 0", "optim.batch_rows = 0: Expected `int` >= 1"),
        ("[optim]\nlr = -1", "optim.lr = -1: Expected `float` > 0.0"),
        ("[optim]\nlr_sweep = [1e-3, 2.0]", "optim.lr_sweep[1] = 2.0: Expected `float` <= 1.0"),
        ("[optim]\nepochs = inf", "optim.epochs = inf: a finite number is expected"),
        ("[optim]\nlr_sweep = [nan]", "optim.lr_sweep[0] = nan: a finite number is expected"),
        ("[data]\nrollout_share = 7", "data.rollout_share = 7: Expected `float` <= 1.0"),
        ("[data]\nvoucher_times = 0", "data.voucher_times = 0: Expected `int` >= 1"),
        ("[decode]\ntop_p = 0.0", "decode.top_p = 0.0: Expected `float` > 0.0"),
        ("[decode]\nturns_max = 0", "decode.turns_max = 0: Expected `int` >= 1"),
        ("[guards]\nemission_min = 90", "guards.emission_min = 90: Expected `float` <= 1.0"),
        ("[lora]\nr = -1", "lora.r = -1: Expected `int` >= 0"),
        ("[lora]\ntargets = []", "lora.targets = []: Expected `array` of length >= 1"),
    ],
)
def test_a_value_out_of_bounds_is_an_error_that_names_key_value_and_bound(text: str, told: str) -> None:
    assert detail(BASE + text) == f"r.toml: {told}"


def test_an_adapter_goes_to_modules_that_a_layer_has() -> None:
    found = detail(BASE + '[lora]\ntargets = ["q_proj", "qproj"]')
    assert found.startswith("r.toml: lora.targets[1] = 'qproj': one of ")
    assert all(name in found for name in ALL_LINEAR) and found.endswith("; did you mean 'q_proj'?")
    assert detail(BASE + '[optim]\nschedule = "cosin"').endswith("did you mean 'cosine'?")


@pytest.mark.parametrize(
    ("stage", "text", "told"),
    [
        ("kto", "", "optim.batch_rows = 1: KTO pairs the rows of a batch, at least 2"),
        ("kto", "[optim]\nbatch_rows = 2\nlr_sweep = [1e-3]", "optim.lr_sweep: kto sweeps no learning rates"),
        ("grpo", "[optim]\nbatch_rows = 5", "optim.batch_rows = 5 has to divide 48, the rollouts of a step"),
        ("grpo", "[decode]\ntemperature = 0.0", "decode.temperature = 0.0"),
        ("grpo", "[grpo]\nis_blended_per_turn = true", "needs grpo.tool_weight above 0"),
        ("grpo", 'sampler = "scripted"', "grpo samples from its own policy"),
        (
            "grpo",
            'sampler = "http://h/v1"\nsampler_model = "m"\n[grpo]\nrefresh_every_steps = 5\n[lora]\nr = 0',
            "grpo.refresh_every_steps needs lora.r above 0",
        ),
        ("grpo", "[decode]\ntop_p = 0.95", "decode.top_p = 0.95: the trainer scores the whole distribution"),
        ("sft", "[optim]\nlr_sweep = [1e-3, 1e-2]", "needs dev rows: data.dev names no corpus"),
        ("rejection", 'sampler = "http://h/v1"', "sampler_model has to name the model there"),
        ("rejection", 'sampler = "h:8000"', "sampler = 'h:8000' is neither a URL nor `scripted`"),
        ("teacher", 'teacher = "claude"', "teacher = 'claude' is neither a URL nor `scripted`"),
    ],
)
def test_keys_that_contradict_each_other_are_told_when_the_recipe_is_read(stage: str, text: str, told: str) -> None:
    assert told in detail(f'name = "x"\nstage = "{stage}"\nmodel = "m"\n{text}\n')


def test_contradictions_are_told_together() -> None:
    found = detail('name = "x"\nstage = "grpo"\nmodel = "m"\n[optim]\nbatch_rows = 5\n[decode]\ntemperature = 0.0\n')
    assert "batch_rows" in found and "temperature" in found


def test_a_recipe_that_reads_and_can_not_run_is_told_before_it_starts() -> None:
    def runnable(stage: str, text: str) -> None:
        require_runnable(parse_recipe(f'name = "x"\nstage = "{stage}"\nmodel = "m"\n{text}\n'), "r.toml")

    with pytest.raises(ArenaError, match=r"V2120.*rejection learns from problems .*data\.problems"):
        runnable("rejection", "")
    watched = "[optim]\nbatch_rows = 2\n[data]\nproblems = 'p'\n"
    with pytest.raises(ArenaError, match=r"V2120.*emission_min watches .*data\.dev_problems"):
        runnable("kto", watched)
    runnable("kto", watched + "[guards]\nemission_min = 0.0\n")
    refresh = (
        "[data]\nproblems = 'p'\n[decode]\ntop_p = 1.0\n[grpo]\nrefresh_every_steps = 2\n[optim]\nsave_every_steps = "
    )
    with pytest.raises(ArenaError, match=r"V2120.*save_every_steps = 3 has to be a multiple"):
        runnable("grpo", refresh + "3")
    runnable("grpo", refresh + "4")
    runnable("sft", "")


def test_parameters_of_qwen3_4b_are_counted_to_a_thousandth() -> None:
    assert count_parameters(QWEN3_4B) == pytest.approx(4.022e9, rel=1e-3)  # the published count


def test_an_adapter_is_counted_by_its_targets() -> None:
    recipe = parse_recipe(BASE + f"[lora]\nr = 16\ntargets = {list(ATTENTION)}\n".replace("'", '"'))
    queries, keys = 32 * 128, 8 * 128
    per_layer = 16 * ((2_560 + queries) + 2 * (2_560 + keys) + (queries + 2_560))
    assert count_adapter(QWEN3_4B, recipe) == 36 * per_layer


def test_an_estimate_grows_with_tokens_and_needs_a_config(tmp_path: Path) -> None:
    import json

    (tmp_path / "config.json").write_text(json.dumps(QWEN3_4B), "utf-8")
    recipe = parse_recipe(BASE.replace('"m"', f'"{tmp_path}"'))
    small, large = (estimate_run(recipe, Work(corpus_tokens=count)) for count in (1_000_000, 2_000_000))
    assert large.hours["NVIDIA H100"] == pytest.approx(2 * small.hours["NVIDIA H100"])
    assert 8 < small.memory_gb < 80  # the paper's stages ran on one H100
    full = parse_recipe(BASE.replace('"m"', f'"{tmp_path}"') + "[lora]\nr = 0\n")
    assert estimate_run(full, Work(corpus_tokens=1)).memory_gb > 4.0 * 16  # weights, gradients, two moments in fp32
    with pytest.raises(ArenaError, match="Qwen3-4B") as wrong:
        estimate_run(Recipe(name="x", stage="sft", model=str(tmp_path / "absent")), Work())
    assert wrong.value.failure.code == "V2124"


def test_qwen3_4b_is_known_by_name_and_a_folders_own_config_comes_first(tmp_path: Path) -> None:
    import json

    assert read_shape("models/Qwen3-4B") == read_shape("Qwen/Qwen3-4B") == QWEN3_4B
    own = tmp_path / "Qwen3-4B"
    own.mkdir()
    (own / "config.json").write_text(json.dumps(QWEN3_4B | {"num_hidden_layers": 1}), "utf-8")
    assert read_shape(str(own))["num_hidden_layers"] == 1


def test_the_passes_that_kl_asks_for_and_what_is_sampled_are_counted() -> None:
    """On the same tokens KTO does 14 operations a parameter and token and GRPO 10 where training alone does 8."""

    def of(stage: str, work: Work, more: str = "") -> RunEstimate:
        return estimate_run(parse_recipe(f'name = "x"\nstage = "{stage}"\nmodel = "Qwen3-4B"\n{more}'), work)

    grpo = "[decode]\ntop_p = 1.0\n[optim]\nsteps_max = 5\n[grpo]\nproblems_per_step = 4\nsamples = 5\n"
    kto, rl = of("kto", Work(taken=100), "[optim]\nbatch_rows = 2\n"), of("grpo", Work(problems=40), grpo)
    assert kto.tokens == rl.tokens == 100 * EPISODE_TOKENS and (kto.episodes, rl.episodes) == (0, 100)
    alone = of("sft", Work(corpus_tokens=kto.tokens)).hours["NVIDIA H100"]
    assert kto.hours["NVIDIA H100"] == pytest.approx(14 / 8 * alone)
    assert rl.hours["NVIDIA H100"] == pytest.approx(10 / 8 * alone)
    no_kl = of("grpo", Work(problems=40), grpo + "beta = 0.0\n")
    assert no_kl.hours["NVIDIA H100"] == pytest.approx(alone)
    assert no_kl.sampling_hours == rl.sampling_hours and rl.sampling_hours["NVIDIA H100"] > 0
    wide = of("grpo", Work(problems=40), "parallel = 80\n" + grpo).sampling_hours["NVIDIA H100"]
    assert wide < rl.sampling_hours["NVIDIA H100"]  # rows decoded together read the weights once
    watched = of("kto", Work(taken=320, dev=6), "[optim]\nbatch_rows = 2\naccumulation = 8\n")
    assert watched.episodes == 2 * 6  # 20 steps, the emission guard after every ten
    assert of("rejection", Work(problems=10)).episodes == 80
    assert of("teacher", Work(problems=10)).episodes == 0 < of("teacher", Work(problems=10)).tokens


def test_where_all_weights_are_trained_a_reference_is_a_second_model() -> None:
    def of(stage: str) -> float:
        text = f'name = "x"\nstage = "{stage}"\nmodel = "Qwen3-4B"\n[lora]\nr = 0\n[optim]\nbatch_rows = 2\n'
        return estimate_run(parse_recipe(text), Work()).memory_gb

    assert of("kto") - of("sft") == pytest.approx(4.022 * 4, rel=1e-3)


def test_a_process_weight_is_another_run_and_none_is_the_run_it_was() -> None:
    text = BASE.replace("sft", "grpo") + "[decode]\ntemperature = 1.0\ntop_p = 1.0\n[grpo]\nprocess_weight = {}\n"
    none, half = (parse_recipe(text.format(weight)) for weight in (0.0, 0.5))
    assert none.recipe_sha256 == parse_recipe(text.partition("[grpo]")[0]).recipe_sha256 != half.recipe_sha256
