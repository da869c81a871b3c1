"""Several model endpoints: read from the settings file, routed by model, asked before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from arena.policies import policy_by_name
from foundation.errors import ArenaError
from harness.inference.gateway import UpstreamPrice
from neurons.settings.endpoints import (
    Endpoint,
    check_endpoints,
    endpoints_of,
    local_models,
    named_endpoints,
)
from neurons.settings.settings import format_rows, resolve
from tests.harness.inference_stand import OtherServer, raw, status

TWO = """
[[upstreams]]
name = "provider"
base_url = "https://models.example/v1"
api_key_env = "PROVIDER_KEY"
prompt_micro_usd = 150000
completion_micro_usd = 600000

[[upstreams]]
name = "ours"
base_url = "http://127.0.0.1:8000/v1"
models = ["arena-agent"]
requests_at_once = 2
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own, and no endpoint in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("PROVIDER_KEY", "a secret")
    return tmp_path


def settings_of(folder: Path, text: str):
    (folder / "arena.toml").write_text(text)
    return resolve({"state_dir": folder})


def listing(*models: str) -> OtherServer:
    """A server that lists `models`."""
    return OtherServer(listed=raw(json.dumps({"object": "list", "data": [{"id": name} for name in models]}).encode()))


def test_a_settings_file_names_endpoints_and_dry_run_shows_no_key(folder: Path) -> None:
    resolved = settings_of(folder, TWO)
    provider, ours = named_endpoints(resolved.settings)
    assert (provider.api_key, provider.models) == ("a secret", ())
    assert provider.price == UpstreamPrice(prompt_micro_usd=150_000, completion_micro_usd=600_000)
    assert (ours.api_key, ours.models, ours.requests_at_once) == ("", ("arena-agent",), 2)
    assert Path(ours.slots_dir).is_relative_to(folder)
    shown = "\n".join(format_rows(resolved.rows))
    assert "ours (http://127.0.0.1:8000/v1: arena-agent)" in shown and "a secret" not in shown


def test_a_model_is_asked_of_the_endpoints_that_name_it_else_of_those_that_name_none() -> None:
    general = Endpoint(name="general", base_url="http://a/v1")
    own = Endpoint(name="own", base_url="http://b/v1", models=("m",))
    assert endpoints_of("m", (general, own)) == (own,)
    assert endpoints_of("other", (general, own)) == (general,)
    assert endpoints_of("other", (own,)) == ()


def test_without_a_model_named_the_endpoints_own_is_chosen_or_the_choice_is_named(folder: Path) -> None:
    demo = policy_by_name("demo")

    def models(base_url: str, **flags: str) -> tuple[str, ...]:
        return local_models(resolve({"openai_base_url": base_url, **flags}).settings, demo)

    with listing("only") as one:
        assert models(one.base_url) == ("only",)
        assert local_models(resolve({"openai_base_url": one.base_url}).settings, policy_by_name("paper")) == (
            policy_by_name("paper").inference.models
        )
    with listing("b", "a") as several, pytest.raises(ArenaError, match=r"U3005.*lists a, b: name one with --model"):
        models(several.base_url)
    with listing("x", demo.inference.models[0]) as scripted:
        assert models(scripted.base_url) == demo.inference.models[:1]
    with OtherServer(listed=status(404)) as silent, pytest.raises(ArenaError, match="it lists no models: name one"):
        models(silent.base_url)
    assert models("http://127.0.0.1:9/v1") == demo.inference.models
    assert local_models(resolve({}).settings, demo) == demo.inference.models


def test_a_model_needs_one_endpoint_that_answers_where_that_is_asked_for() -> None:
    away = Endpoint(name="away", base_url="http://127.0.0.1:9/v1")
    with listing("a") as server:
        there = Endpoint(name="there", base_url=server.base_url)
        own = msgspec.structs.replace(away, name="own", models=("b",))
        assert len(check_endpoints((away, there), ("a",), must_answer=True)) == 1
        for endpoints, model, told in (
            ((away,), "a", "U3002.*away at http://127.0.0.1:9/v1 does not answer"),
            ((there, own), "b", "U3002.*own at"),
            ((there,), "c", "U3005.*c at"),
            ((own,), "a", "U3001.*serves a"),
        ):
            with pytest.raises(ArenaError, match=told):
                check_endpoints(endpoints, (model,), must_answer=True)
