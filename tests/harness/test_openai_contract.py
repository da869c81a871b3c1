"""The real `openai` client: what it makes of the scripted model's replies, and what our own `SdkUpstream` does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from harness.inference.client import OpenAIUpstream, SdkUpstream
from harness.inference.scripted.model import MODELS, ScriptedUpstream, complete
from tests.harness.inference_stand import OtherServer, scripted

ROOT = Path(__file__).parents[2]
ASK = {
    "model": MODELS[0],
    "messages": [{"role": "user", "content": "I'm looking for a desk lamp priced below 500 PHP."}],
    "tools": [{"type": "function", "function": {"name": "find_product", "parameters": {"type": "object"}}}],
}


def test_the_scripted_models_reply_is_one_of_the_protocol() -> None:
    with OtherServer(then=scripted) as server, openai.OpenAI(base_url=server.base_url, api_key="none") as client:
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


def test_both_clients_get_the_same_reply_and_the_same_refusal() -> None:
    request = json.dumps(ASK)
    other = request.replace(MODELS[0], "other")
    with OtherServer(then=scripted) as server:
        for kind in (OpenAIUpstream, SdkUpstream):
            upstream = kind("x", server.base_url, "", 20_000)
            assert upstream.complete(request) == ScriptedUpstream().complete(request)
            assert upstream.probe(other) == ScriptedUpstream().probe(other)
            assert upstream.probe(request) == ScriptedUpstream().probe(request)


@pytest.mark.parametrize(
    ("imported", "spared"),
    [
        ("neurons.worker.process, neurons.worker.ports, judge.client", {"openai"}),
        ("harness.inference.client, harness.inference.scripted", {"httpx2"}),
    ],
)
def test_what_takes_long_to_import_is_imported_late(imported: str, spared: set[str]) -> None:
    code = f"import sys, {imported}; print({spared} & {{*sys.modules}})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.strip() == "set()"
