"""The real `openai` client: the endpoint that we serve to it, and what our own `SdkUpstream` makes of others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx2
import openai
import pytest

from foundation.errors import ArenaError
from harness.inference.client import OpenAIUpstream, SdkUpstream
from harness.inference.scripted.model import MODELS, ScriptedUpstream, complete, start_scripted_server

ROOT = Path(__file__).parents[2]
ASK = {
    "model": MODELS[0],
    "messages": [{"role": "user", "content": "I'm looking for a desk lamp priced below 500 PHP."}],
    "tools": [{"type": "function", "function": {"name": "find_product", "parameters": {"type": "object"}}}],
}


def test_the_served_endpoint_speaks_the_protocol_of_the_package() -> None:
    with start_scripted_server() as server, openai.OpenAI(base_url=server.base_url, api_key="none") as client:
        assert [model.id for model in client.models.list()] == list(MODELS)
        answer = client.chat.completions.create(**ASK)
        (call,) = answer.choices[0].message.tool_calls
        assert (call.function.name, answer.choices[0].finish_reason) == ("find_product", "tool_calls")
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
        assert answer.to_dict() == complete(ASK)
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.chat.completions.create(**ASK | {"model": "other"})
        with pytest.raises(openai.BadRequestError, match="length >= 1"):
            client.chat.completions.create(**ASK | {"messages": []})
        with pytest.raises(openai.BadRequestError, match="does not stream"):
            client.chat.completions.create(**ASK, stream=True)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("GET", "/health", b"", 200, "ok"),
        ("POST", "/v1/completions", b"{}", 404, "no route POST /v1/completions"),
        ("POST", "/v1/chat/completions", b"{", 400, "not JSON"),
        ("POST", "/v1/chat/completions", b"[]", 400, "not a JSON object"),
    ],
)
def test_the_served_endpoint_says_what_it_does_not_answer(
    method: str, path: str, body: bytes, status: int, said: str
) -> None:
    with start_scripted_server() as server:
        answer = httpx2.request(method, server.base_url.removesuffix("/v1") + path, content=body)
    assert (answer.status_code, said in answer.text) == (status, True)


def test_a_port_in_use_is_named() -> None:
    with start_scripted_server() as server:
        port = int(server.base_url.split(":")[2].partition("/")[0])
        with pytest.raises(ArenaError, match=f"U3001.*cannot bind 127.0.0.1:{port}"), start_scripted_server(port):
            pass


def test_both_clients_get_the_same_reply_and_the_same_refusal() -> None:
    request = json.dumps(ASK)
    other = request.replace(MODELS[0], "other")
    with start_scripted_server() as server:
        for kind in (OpenAIUpstream, SdkUpstream):
            upstream = kind("x", server.base_url, "", 20_000)
            assert upstream.complete(request) == ScriptedUpstream().complete(request)
            assert upstream.probe(other) == ScriptedUpstream().probe(other)
            assert upstream.probe(request) is ScriptedUpstream().probe(request) is None


@pytest.mark.parametrize(
    ("imported", "spared"),
    [
        ("neurons.worker.process, neurons.worker.ports, judge.client", {"openai"}),
        ("harness.inference.client, harness.inference.scripted", {"httpx2", "uvicorn"}),
    ],
)
def test_what_takes_long_to_import_is_imported_late(imported: str, spared: set[str]) -> None:
    code = f"import sys, {imported}; print({spared} & {{*sys.modules}})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.strip() == "set()"
