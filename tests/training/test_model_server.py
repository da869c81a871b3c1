"""A model folder's endpoint: what `OpenAIUpstream` asks it, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import msgspec
import pytest

from foundation.errors import ArenaError
from harness.inference.client import OpenAIUpstream
from harness.tools.registry import profile_schemas
from tests.training.stock import TOKENIZER
from training.model import Decode
from training.models.render import Qwen3Codec
from training.rollouts.model_server import ModelEndpoint, open_model_server
from training.samplers.scripted import ScriptedSampler


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    codec = Qwen3Codec(TOKENIZER)
    decode = Decode(temperature=0, top_p=1.0, turn_tokens_max=2_000, context_tokens_max=20_000)
    server = open_model_server(ModelEndpoint(ScriptedSampler(codec), codec, "small", decode), 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def upstream(port: int) -> OpenAIUpstream:
    return OpenAIUpstream("local", f"http://127.0.0.1:{port}/v1", "", 30_000)


def request(query: str, **fields: object) -> str:
    tools = msgspec.json.decode(profile_schemas("paper4"))
    messages = [{"role": "system", "content": "Shop."}, {"role": "user", "content": query}]
    return msgspec.json.encode({"model": "small", "messages": messages, "tools": tools, **fields}).decode()


def test_a_reply_holds_calls_that_were_read_from_tokens_and_equal_requests_get_equal_ones(
    upstream: OpenAIUpstream,
) -> None:
    first = upstream.complete(request("Find a red scarf under 300 PHP."))
    assert first.calls[0].name == "find_product"
    assert first.prompt_tokens > 100 and first.completion_tokens > 10
    assert upstream.complete(request("Find a red scarf under 300 PHP.")) == first


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (request("hi", model="other"), "U3001"),
        (request("hi " * 30_000), "A1040"),
        (msgspec.json.encode({"model": "small"}).decode(), "A1040"),
        (msgspec.json.encode({"model": "small", "messages": [3]}).decode(), "A1040"),
    ],
)
def test_what_it_cannot_answer_is_refused_as_other_endpoints_refuse_it(
    upstream: OpenAIUpstream, asked: str, code: str
) -> None:
    with pytest.raises(ArenaError) as refused:
        upstream.complete(asked)
    assert refused.value.failure.code == code
