"""Settings: precedence, sources, nearest names, masked secrets; the model endpoints that they name, routed by model and
asked before anything runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from arena.policies import POLICIES
from foundation.errors import ArenaError
from harness.limits import TokenPrice
from neurons.cli.options import state_folder
from neurons.cli.validator import app
from neurons.settings.endpoints import check_endpoints, local_models, named_endpoints
from neurons.settings.settings import NAMES, Endpoint, format_rows, resolve
from tests.harness.inference_stand import OtherServer, raw, status


@pytest.fixture(autouse=True)
def quiet_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No setting of the machine that runs the tests counts; the working folder is empty."""
    for variable in list(os.environ):
        if variable.startswith(("ARENA_", "OPENAI_")):
            monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dry_run(*arguments: str) -> dict[str, tuple[str, str]]:
    """Value and source of every setting under these flags of `arena validator`."""
    done = CliRunner().invoke(app, [*arguments, "--dry-run"])  # what the start would refuse is an error beside them
    rows = (line.split(maxsplit=2) for line in done.stdout.splitlines())
    return {name: ("".join(value), source.strip()) for name, source, *value in rows}


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert dry_run()["netuid"] == ("15", "default")
    (tmp_path / "arena.toml").write_text('netuid = 3\nshare = true\nstate_dir = "/far/node"\n')
    assert dry_run()["netuid"] == ("3", "arena.toml")
    assert state_folder(None) == Path("/far/node")  # of the commands beside the node, too
    monkeypatch.setenv("ARENA_NETUID", "4")
    assert dry_run()["netuid"] == ("4", "environment")
    found = dry_run("--netuid", "5", "--no-share", "--shadow")
    assert found["netuid"] == ("5", "flag")
    assert (found["share"], found["shadow"]) == (("False", "flag"), ("True", "flag"))


def test_the_ecosystems_dotted_flags_are_understood() -> None:
    found = dry_run(
        *["--wallet.name", "alice", "--wallet.hotkey=h1", "--subtensor.network", "finney", "--logging.debug"]
    )
    values = [found[name][0] for name in ("wallet_name", "wallet_hotkey", "network", "log_level")]
    assert values == ["alice", "h1", "finney", "debug"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--wallet.nam", "x"], "--wallet.name"),
        (["--netuid", "many"], "netuid from flag"),
        (["--netuid"], "requires an argument"),
        (["--config", "absent.toml"], "absent.toml"),
    ],
)
def test_a_wrong_flag_is_refused_with_the_reason(arguments: list[str], said: str) -> None:
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code and said in refused.output + str(refused.exception)


def test_an_unknown_key_in_the_file_names_its_nearest(tmp_path: Path) -> None:
    (tmp_path / "arena.toml").write_text('walet_name = "x"\n')
    with pytest.raises(ArenaError, match=r"arena\.toml: unknown setting `walet_name`; did you mean `wallet_name`\?"):
        resolve({})


TWO = """
[[upstreams]]
name = "provider"
base_url = "https://models.example/v1"
api_key_env = "PROVIDER_KEY"
price = { prompt_micro_usd = 150000, completion_micro_usd = 600000 }

[[upstreams]]
name = "ours"
base_url = "http://127.0.0.1:8000/v1"
models = ["arena-agent"]
requests_at_once = 2
"""


def test_endpoints_are_named_in_the_file_and_no_secret_is_ever_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "S3CRET")
    (tmp_path / "arena.toml").write_text(TWO)
    flags = {
        "openai_api_key": "S3CRET",
        "judge_api_key": "S3CRET",
        "database_dsn": "postgresql://arena:S3CRET@db/arena",
    }
    resolved = resolve({"state_dir": tmp_path, **flags})
    provider, ours = named_endpoints(resolved.settings)
    assert (provider.api_key, provider.models) == ("S3CRET", ())
    assert provider.price == TokenPrice(prompt_micro_usd=150_000, completion_micro_usd=600_000)
    assert (ours.api_key, ours.models, ours.requests_at_once) == ("", ("arena-agent",), 2)
    shown = "\n".join(format_rows(resolved.rows)) + repr(resolved.settings)
    assert [row.name for row in resolved.rows] == list(NAMES)
    assert "ours (http://127.0.0.1:8000/v1: arena-agent)" in shown and "(hidden)" in shown and "S3CRET" not in shown


def listing(*models: str) -> OtherServer:
    """A server that lists `models`."""
    return OtherServer(listed=raw(json.dumps({"object": "list", "data": [{"id": name} for name in models]}).encode()))


def test_without_a_model_named_the_endpoints_own_is_chosen_or_the_choice_is_named() -> None:
    demo = POLICIES["demo"]

    def models(base_url: str) -> tuple[str, ...]:
        return local_models(resolve({"openai_base_url": base_url}).settings, demo)

    with listing("only") as one:
        assert models(one.base_url) == ("only",)
    with listing("b", "a") as several, pytest.raises(ArenaError, match=r"U3001.*lists a, b: name one with --model"):
        models(several.base_url)
    with listing("x", demo.inference.models[0]) as scripted:
        assert models(scripted.base_url) == demo.inference.models[:1]
    with OtherServer(listed=status(404)) as silent, pytest.raises(ArenaError, match="it lists no models: name one"):
        models(silent.base_url)
    assert models("http://127.0.0.1:9/v1") == demo.inference.models


def test_a_model_needs_one_endpoint_that_answers_where_that_is_asked_for() -> None:
    away = Endpoint(name="away", base_url="http://127.0.0.1:9/v1")
    with listing("a") as server:
        there = Endpoint(name="there", base_url=server.base_url)
        own = msgspec.structs.replace(away, name="own", models=("b",))
        assert len(check_endpoints((away, there), ("a",), must_answer=True)) == 1
        for endpoints, model, told in (
            ((away,), "a", "U3002.*away at http://127.0.0.1:9/v1 does not answer"),
            ((there, own), "b", "U3002.*own at"),
            ((there,), "c", "U3001.*c at"),
            ((own,), "a", "U3001.*serves a"),
        ):
            with pytest.raises(ArenaError, match=told):
                check_endpoints(endpoints, (model,), must_answer=True)
