"""Sampling from a model in this process: several turns at once, dropout off, logprobs of what was drawn.

Promise: the model is in eval mode while it samples and back in its former mode afterwards (paper B.2); a module found
in training mode all the same ends the run. Each draw uses random numbers of its own seed alone, so a turn does not
depend on what else is in its batch beyond rounding; with `batch_rows` 1, the default, not even on that. Suppressed
tokens are never drawn. Logprobs are log_softmax(logits / temperature) of the raw logits, as a trainer computes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor

from problems.errors import ArenaError
from training.guards import require_eval_mode
from training.model import Decode, Sampled

_Waiting = tuple[tuple[int, ...], Decode, int, "Future[Sampled]"]


class LocalSampler:
    """A `training.model.Sampler` over a transformers causal language model and its stop token.

    Thread-safe: one batch runs at a time, and takes up to `batch_rows` of the turns that wait for it.
    """

    def __init__(
        self, model: Any, *, stop_id: int, suppressed_ids: Sequence[int], version: str, batch_rows: int = 1
    ) -> None:
        """`suppressed_ids` are never sampled; `version` names the weights."""
        self._model = model
        self._stop_id = stop_id
        self._suppressed = list(suppressed_ids)
        self._version = version
        self._batch_rows = batch_rows
        self._waiting: list[_Waiting] = []
        self._queue, self._turn = threading.Lock(), threading.Lock()

    @property
    def version(self) -> str:
        """Identity of the weights."""
        return self._version

    def renew(self, version: str) -> None:
        """The model's weights were changed: from now on it is called `version`."""
        self._version = version

    def sample(self, prompt_ids: tuple[int, ...], decode: Decode, seed: int) -> Sampled:
        """One turn, with whichever others wait at the same time. Raises GuardStopError for a model in training mode."""
        mine: Future[Sampled] = Future()
        with self._queue:
            self._waiting.append((prompt_ids, decode, seed, mine))
        with self._turn:
            while not mine.done():
                self._run_next()
        return mine.result()

    def sample_all(self, prompts: Sequence[tuple[int, ...]], decode: Decode, seeds: Sequence[int]) -> list[Sampled]:
        """A turn for each prompt, in order. Prompts and seeds are of one length, and not empty."""
        with eval_mode(self._model), torch.no_grad():
            sampled = _Batch(self._model, prompts, decode, seeds, self._stop_id, self._suppressed).run()
            require_eval_mode(any(module.training for module in self._model.modules()))
        return sampled

    def _run_next(self) -> None:
        """Run the turn that waits longest, and those that are decoded alike. Its caller holds `_turn`."""
        with self._queue:
            alike = [one for one in self._waiting if one[1] == self._waiting[0][1]][: self._batch_rows]
            taken = {id(one[3]) for one in alike}
            self._waiting = [one for one in self._waiting if id(one[3]) not in taken]
        try:
            drawn = self.sample_all([one[0] for one in alike], alike[0][1], [one[2] for one in alike])
        except (ArenaError, RuntimeError) as error:  # whoever waits for one of these turns must hear of it
            for *_, future in alike:
                future.set_exception(error)
        else:
            for (*_, future), sampled in zip(alike, drawn, strict=True):
                future.set_result(sampled)


@contextlib.contextmanager
def eval_mode(model: Any) -> Iterator[None]:
    """Dropout off inside, whatever mode the model was in; its former mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


class _Batch:
    """Prompts that are continued together, padded on the left."""

    def __init__(
        self,
        model: Any,
        prompts: Sequence[tuple[int, ...]],
        decode: Decode,
        seeds: Sequence[int],
        stop_id: int,
        suppressed: list[int],
    ) -> None:
        self._model, self._decode, self._stop_id, self._suppressed = model, decode, stop_id, suppressed
        self._seeds = list(seeds)
        device = next(model.parameters()).device
        longest = max(len(prompt) for prompt in prompts)
        padded = [[stop_id] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        seen = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        self._ids = torch.tensor(padded, device=device)
        self._attention = torch.tensor(seen, device=device)
        self._positions = (self._attention.cumsum(-1) - 1).clamp(min=0)

    def run(self) -> list[Sampled]:
        count = len(self._seeds)
        tokens: list[list[int]] = [[] for _ in range(count)]
        logprobs: list[list[float]] = [[] for _ in range(count)]
        is_open = [True] * count
        ids, positions, cache = self._ids, self._positions, None
        for step in range(self._decode.turn_tokens_max):
            output = self._model(
                input_ids=ids,
                attention_mask=self._attention,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = output.past_key_values
            chosen, chances = self._draw(output.logits[:, -1].float(), step)
            for row in range(count):
                if is_open[row]:
                    tokens[row].append(int(chosen[row]))
                    logprobs[row].append(float(chances[row]))
                    is_open[row] = int(chosen[row]) != self._stop_id
            if not any(is_open):
                break
            ids = chosen[:, None]
            positions = positions[:, -1:] + 1
            self._attention = torch.cat([self._attention, torch.ones_like(ids)], dim=-1)
        return [
            Sampled(
                token_ids=tuple(tokens[row]),
                logprobs=tuple(logprobs[row]),
                finish="length" if is_open[row] else "stop",
            )
            for row in range(count)
        ]

    def _draw(self, logits: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """(token, logprob) of each row."""
        temperature = self._decode.temperature
        scores = torch.log_softmax(logits / temperature if temperature > 0 else logits, dim=-1)
        allowed = scores.clone()
        allowed[:, self._suppressed] = -torch.inf
        if temperature > 0:
            points = torch.tensor([_uniform(seed, step) for seed in self._seeds], device=logits.device)
            chosen = draw_nucleus(allowed, self._decode.top_p, points)
        else:
            chosen = allowed.argmax(dim=-1)
        return chosen, scores.gather(-1, chosen[:, None])[:, 0]


def draw_nucleus(scores: Tensor, top_p: float, points: Tensor) -> Tensor:
    """The token of each row (rows, vocabulary) at a point of [0, 1) in the nucleus of mass `top_p`, by inverse CDF."""
    ordered, order = torch.softmax(scores, dim=-1).sort(dim=-1, descending=True)
    mass = ordered.cumsum(dim=-1)
    ordered = torch.where(mass - ordered < top_p, ordered, 0.0)  # the first token is always kept
    mass = ordered.cumsum(dim=-1)
    place = torch.searchsorted(mass, (points.to(mass.dtype) * mass[:, -1])[:, None], right=True)
    last = (ordered > 0).sum(dim=-1, keepdim=True) - 1
    return order.gather(-1, torch.minimum(place, last))[:, 0]


def _uniform(seed: int, step: int) -> float:
    """A number of [0, 1) from seed and position: the same wherever the draw takes place."""
    digest = hashlib.blake2b(f"{seed}/{step}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
