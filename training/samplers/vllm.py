"""Sampling from a vLLM server: token ids out over HTTP, token ids and logprobs back.

The prompt travels as ids and the turn comes back as ids (`/v1/completions` with `return_token_ids`), so
nothing is tokenised twice. An adapter is loaded under a new name for every version: the server keys its prefix cache by
name. A reply without ids or logprobs is refused, never guessed at.

vLLM's logprobs are of the raw logits, before temperature, top-p and suppression (its `--logprobs-mode raw_logprobs`):
at temperature 1 they are what a trainer computes. Training on rollouts of another temperature is what the `logprobs`
guard stops. The server runs in an environment of its own (docker/vllm.Dockerfile); nothing here imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import msgspec

from foundation.bounded_http import BoundedClient, UnfitAnswerError
from foundation.canonical import UNREADABLE_JSON
from foundation.codes import BAD_REQUEST, NO_ENDPOINT, SHAPE_NOT_SERVED
from foundation.durable_files import coded
from foundation.errors import ArenaError
from harness.inference.client import code_of_status, explain_refusal
from training.model import Decode, TurnSample
from training.models.render import Qwen3Codec
from training.recipe import Recipe
from training.run import weights_sha256

TIMEOUT_S = 600.0  # of a whole reply
_SUPPRESSED = -100.0  # logit bias: the strongest the protocol allows
_REPLY_BYTES = 64 << 20  # of one reply: the ids of prompt and turn, and a logprob for each token


class _Logprobs(msgspec.Struct, frozen=True):
    token_logprobs: tuple[float | None, ...]


class _Choice(msgspec.Struct, frozen=True):
    token_ids: tuple[int, ...]
    logprobs: _Logprobs
    finish_reason: str


class _VllmCompletion(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...]


class _Model(msgspec.Struct, frozen=True):
    id: str
    root: str | None = None  # the folder it was loaded from, as the server sees it; a router says none
    parent: str | None = None  # of an adapter: the model it was loaded on


class _Models(msgspec.Struct, frozen=True):
    data: tuple[_Model, ...]


class VllmSampler:
    """A `training.model.Sampler` over one model of a vLLM server. Thread-safe: the server batches what is asked."""

    def __init__(self, base_url: str, model: str, codec: Qwen3Codec) -> None:
        """`base_url` with its version path (`http://host:8000/v1`); `model` as the server names it."""
        self.version, self._codec = model, codec  # the model or adapter that is asked
        self._loaded: set[str] = set()  # adapters of ours
        self._client = BoundedClient(base_url=base_url.rstrip("/") + "/", silence_s=TIMEOUT_S, connect_s=TIMEOUT_S)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def sample(self, prompt_ids: tuple[int, ...], decode: Decode, seed: int) -> TurnSample:
        """One turn. Raises ArenaError U3001 (unknown model), U3002, U3004 (server away or busy), U3003 (a reply without
        tokens), U3007 (a request that it does not take)."""
        answer = self._ask(
            "POST",
            "completions",
            {
                "model": self.version,
                "prompt": list(prompt_ids),
                "max_tokens": decode.turn_tokens_max,
                "temperature": decode.temperature,
                "top_p": decode.top_p if decode.temperature > 0 else 1.0,
                "seed": seed,
                "logprobs": 0,  # of the sampled token alone
                "return_token_ids": True,
                "stop_token_ids": [self._codec.stop_id],
                "logit_bias": {str(token): _SUPPRESSED for token in self._codec.template_only_ids},
                "skip_special_tokens": False,
                "n": 1,
            },
        )
        try:
            choice = msgspec.json.decode(answer, type=_VllmCompletion).choices[0]
        except (*UNREADABLE_JSON, IndexError) as error:
            raise ArenaError("U3003", f"{error}; the server must answer `return_token_ids` and `logprobs`") from error
        logprobs = tuple(one for one in choice.logprobs.token_logprobs if one is not None)
        if len(logprobs) != len(choice.token_ids) or not choice.token_ids:
            raise ArenaError("U3003", f"{len(choice.token_ids)} tokens with {len(logprobs)} logprobs")
        is_cut = choice.finish_reason == "length" and choice.token_ids[-1] != self._codec.stop_id
        return TurnSample(token_ids=choice.token_ids, logprobs=logprobs, finish="length" if is_cut else "stop")

    def load_adapter(self, folder: Path) -> None:
        """Serve the adapter in `folder` from now on, by a name that carries its weights' hash, and sample from it.

        A run that was killed finds its adapter served. Whether it was loaded now or before, the server is asked which
        folder it took: one with other weights is refused, and from one that is gone it is loaded anew. The server reads
        `folder` itself, and has to be started with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True. Raises ArenaError U3007 when
        it refuses, U3001 when it does not list the adapter or holds other weights under its name; V2124 for a folder
        without weights.
        """
        digest = weights_sha256(folder)
        name = f"adapter-{digest[:16]}"
        if name == self.version:
            return
        served = self._served()
        if name in served and _is_gone(served[name], served):
            self._ask("POST", "unload_lora_adapter", {"lora_name": name})
            del served[name]
        if name not in served:
            try:
                self._ask("POST", "load_lora_adapter", {"lora_name": name, "lora_path": str(folder.resolve())})
            except ArenaError as error:  # vLLM answers 404 where it can't read the adapter, too
                if error.failure.code != NO_ENDPOINT:
                    raise
                raise ArenaError(SHAPE_NOT_SERVED, f"{folder}: {error.failure.detail}") from error
        held = self._weights_of(name)
        if held and held != digest:
            raise ArenaError("U3001", f"{self._client.base_url} serves weights {held[:16]} as {name}")
        previous, self.version = self.version, name
        if previous in self._loaded:
            self._ask("POST", "unload_lora_adapter", {"lora_name": previous})
            self._loaded.remove(previous)
        self._loaded.add(name)

    def served_weights(self) -> str:
        """Hash of the weights in the folder that the server says it serves under this name, "" where it names none that
        is on this machine.

        Raises ArenaError U3001 where it is another than the name carries (NAME@HASH, as `arena reenter` prints it), and
        for a server without a model of this name, or with an adapter whose folder is gone; U3002 or U3003 when it does
        not say.
        """
        held, named = self._weights_of(self.version), self.version.partition("@")[2]
        if held and named and not held.startswith(named):
            raise ArenaError("U3001", f"{self._client.base_url} serves weights {held[:16]} as {self.version}")
        return held

    def _weights_of(self, name: str) -> str:
        served = self._served()
        if name not in served:
            names = ", ".join(sorted(served)) or "nothing"
            raise ArenaError("U3001", f"{self._client.base_url} serves {names}, not {name}")
        root = served[name].root or ""
        if _is_gone(served[name], served):
            raise ArenaError("U3001", f"{name} was loaded from {root}, which is gone: asked for it, the server may end")
        return weights_sha256(Path(root)) if root and any(Path(root).glob("*.safetensors")) else ""

    def _served(self) -> dict[str, _Model]:
        """All models and adapters that are served, by name."""
        content = self._ask("GET", "models", None)
        with coded("the list of models", "U3003"):
            listed = msgspec.json.decode(content, type=_Models)
        return {model.id: model for model in listed.data}

    def _ask(self, method: str, path: str, fields: dict[str, Any] | None) -> bytes:
        try:
            response = self._client.ask(method, path, json=fields, bytes_max=_REPLY_BYTES, within_s=TIMEOUT_S)
        except UnfitAnswerError as error:
            raise ArenaError("U3003", f"{self._client.base_url}{path}: {error}") from error
        except httpx2.HTTPError as error:
            raise ArenaError("U3002", f"{self._client.base_url}{path}: {type(error).__name__}") from error
        if response.is_success:
            return response.content
        code = code_of_status(response.status_code)  # a prompt over the context, an adapter that can't be loaded
        raise ArenaError(SHAPE_NOT_SERVED if code == BAD_REQUEST else code, explain_refusal(response))


def _is_gone(adapter: _Model, served: dict[str, _Model]) -> bool:
    """True where the folder of an adapter is gone: vLLM reads it again when the adapter has left its cache, and its
    engine ends where it can't. False where the server's folders are not this machine's."""
    base = served.get(adapter.parent or "")
    return bool(base and base.root and adapter.root and Path(base.root).is_dir() and not Path(adapter.root).is_dir())


def outside_sampler(recipe: Recipe, codec: Qwen3Codec) -> VllmSampler | None:
    """The server of `recipe.sampler`; None where the run's own model samples."""
    return VllmSampler(recipe.sampler, recipe.sampler_model, codec) if recipe.sampler else None
