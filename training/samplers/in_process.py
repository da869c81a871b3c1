"""Sampling from a model in this process: several turns at once, dropout off, logprobs of what was drawn.

The model is in eval mode while it samples and back in its former mode afterwards (paper B.2); a module found
in training mode all the same ends the run. Each draw uses random numbers of its own seed alone, so a turn does not
depend on what else is in its batch, or was sampled before, beyond rounding; with `batch_rows` 1, the default, not even
on that. Suppressed tokens are never drawn. Logprobs are log_softmax(logits / temperature) of the raw logits, as a
trainer computes them.

Turns come and go while a batch runs. What a conversation, or any other, has computed of a prompt's beginning is not
computed again, as long as it is held. A sampler is of one version of the weights.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from training.guards import require_eval_mode
from training.model import Decode, TurnSample
from training.models.render import Qwen3Codec
from training.samplers.ragged_attention import Attention, ManyRows, OneRow, Place, PrefixTree, ragged

HELD_BYTES = 2 << 30  # 3 KB a token for a few million weights, 147 KB for Qwen3-4B in bf16
_PASS_TOKENS = 1_024  # of a prompt in one pass: bounds the mask
_NUCLEUS_TOKENS = 64  # a nucleus of more is found by sorting the vocabulary


class LocalSampler:
    """A `training.model.Sampler` over a transformers causal language model and its stop token.

    Thread-safe. One of the threads that wait for a turn runs the batch for all of them, up to `batch_rows` at a time,
    and leaves it to another when its own turn is done.
    """

    def __init__(
        self,
        model: Any,
        *,
        stop_id: int,
        suppressed_ids: Sequence[int],
        version: str,
        batch_rows: int = 1,
    ) -> None:
        """`suppressed_ids` are never sampled; `version` names the weights, which stay as they are while this samples.

        With one row a batch nothing is held of turns that are over, so that none depends on what was sampled before.
        """
        self._model = model
        self._stop_id = stop_id
        self._suppressed = list(suppressed_ids)
        self.version = version  # identity of the weights
        self._batch_rows = batch_rows
        self._held_bytes = HELD_BYTES if batch_rows > 1 else 0
        self._changed = threading.Condition()  # of the two lines below, and of turns that are over
        self._waiting: deque[_Turn] = deque()
        self._is_led = False
        # what follows belongs to the thread that leads
        self._rows: list[_Turn] = []
        self._together: ManyRows | None = None  # what they hold; None where there is no row
        self._modules: list[Any] = []
        self._tree = PrefixTree(self._held_bytes)

    def sample(self, prompt_ids: tuple[int, ...], decode: Decode, seed: int) -> TurnSample:
        """One turn, with whichever others wait at the same time. Raises GuardStopError for a model in training mode."""
        turn = _Turn(prompt=prompt_ids, decode=decode, seed=seed)
        with self._changed:
            self._waiting.append(turn)
            self._changed.wait_for(lambda: turn.is_over or not self._is_led)
            leads = not turn.is_over
            self._is_led = self._is_led or leads
        if leads:
            self._lead(turn)
        if turn.sampled is None:
            raise turn.error or AssertionError("a turn that is over has an answer")
        return turn.sampled

    def _lead(self, own: _Turn) -> None:
        """Run batches until this turn is done; then another thread that waits may lead."""
        try:
            with eval_mode(self._model), torch.inference_mode(), ragged(self._model):
                self._modules = list(self._model.modules())
                while not own.is_over:
                    self._admit()
                    self._step()
        except BaseException as error:  # waiting turns must get the error, or they would wait for ever
            self._fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            with self._changed:
                self._is_led = False
                self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        """Every turn that runs or waits ends with `error`; what was computed for them is not to be trusted."""
        with self._changed:
            turns = [*self._rows, *self._waiting]
            self._waiting.clear()
        self._rows, self._together, self._tree = [], None, PrefixTree(self._held_bytes)
        for turn in turns:
            turn.error = error

    def _admit(self) -> None:
        """Take in waiting turns as long as there is room and they are drawn as those that run: first come first."""
        while len(self._rows) < self._batch_rows:
            with self._changed:
                turn = self._waiting[0] if self._waiting else None
            if turn is None:
                return
            running = self._rows[0].decode if self._rows else turn.decode
            if (turn.decode.temperature, turn.decode.top_p) != (running.temperature, running.top_p):
                return
            turn.pending = turn.prompt[-1]
            with self._changed:  # from here on it belongs to the batch: a failure of what follows is its own too
                self._waiting.popleft()
                self._rows.append(turn)
            place = turn.place = self._tree.place(turn.prompt[:-1])
            for first in range(place.end, len(turn.prompt) - 1, _PASS_TOKENS):
                ids = list(turn.prompt[first : min(first + _PASS_TOKENS, len(turn.prompt) - 1)])
                place.ids += ids
                self._forward(ids, list(range(first, first + len(ids))), OneRow(place, len(ids)))

    def _step(self) -> None:
        """One token more for each row."""
        together = self._together = self._together or ManyRows()
        if together.places != [row.place for row in self._rows]:
            self._rows.sort(key=lambda row: [one.number for one in row.place.path()])  # a common path side by side
            together.follow([row.place for row in self._rows])
        rows = list(self._rows)
        ids = [row.pending for row in rows]
        together.grow(ids)
        logits = self._forward(ids, [len(row.prompt) - 1 + len(row.tokens) for row in rows], together)
        chosen, chances = self._draw(logits.float(), rows)
        for row, token, chance in zip(rows, chosen.tolist(), chances.tolist(), strict=True):
            row.tokens.append(token)
            row.logprobs.append(chance)
            row.pending = token
            if token == self._stop_id or len(row.tokens) >= row.decode.turn_tokens_max:
                together.put_back(row.place)
                self._rows.remove(row)
                self._tree.release(row.place)
                finish: Literal["stop", "length"] = "stop" if token == self._stop_id else "length"
                with self._changed:
                    row.sampled = TurnSample(token_ids=tuple(row.tokens), logprobs=tuple(row.logprobs), finish=finish)
                    self._changed.notify_all()
        if not self._rows:
            self._together = None

    def _forward(self, ids: list[int], positions: list[int], attending: Attention) -> Tensor:
        """Logits (tokens, vocabulary) of tokens side by side; of the last one alone where they are one row's.

        Raises GuardStopError when a module was in training mode.
        """
        device = next(self._model.parameters()).device
        output = self._model(
            input_ids=torch.tensor([ids], device=device),
            position_ids=torch.tensor([positions], device=device),
            use_cache=False,
            logits_to_keep=1 if isinstance(attending, OneRow) else 0,
            attending=attending,
        )
        require_eval_mode(any(module.training for module in self._modules))
        logits: Tensor = output.logits[0]
        return logits

    def _draw(self, logits: Tensor, rows: Sequence[_Turn]) -> tuple[Tensor, Tensor]:
        """(token, logprob) of each row. All rows are drawn alike."""
        decode = rows[0].decode
        scores = torch.log_softmax(logits / decode.temperature if decode.temperature > 0 else logits, dim=-1)
        allowed = scores.clone()
        allowed[:, self._suppressed] = -torch.inf
        if decode.temperature > 0:
            points = [_uniform(row.seed, len(row.tokens)) for row in rows]
            chosen = draw_nucleus(allowed, decode.top_p, torch.tensor(points, device=logits.device))
        else:
            chosen = allowed.argmax(dim=-1)
        return chosen, scores.gather(-1, chosen[:, None])[:, 0]


def sampler_of(model: Any, codec: Qwen3Codec, version: str, batch_rows: int = 1) -> LocalSampler:
    """A sampler that ends its turns, and never draws what the template alone writes, as the codec has it."""
    stop_id, suppressed = codec.stop_id, codec.template_only_ids
    return LocalSampler(model, stop_id=stop_id, suppressed_ids=suppressed, version=version, batch_rows=batch_rows)


@contextlib.contextmanager
def eval_mode(model: Any) -> Iterator[None]:
    """Dropout off inside, whatever mode the model was in; its former mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@dataclass(eq=False)
class _Turn:
    """A turn that was asked for; its answer once it is over. `pending` is the newest token of one that runs, of which
    nothing is computed yet."""

    prompt: tuple[int, ...]
    decode: Decode
    seed: int
    place: Place = field(init=False)  # where its tokens stand, once it is admitted
    pending: int = 0
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    sampled: TurnSample | None = None
    error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is an answer."""
        return self.sampled is not None or self.error is not None


def draw_nucleus(scores: Tensor, top_p: float, points: Tensor) -> Tensor:
    """The token of each row (rows, vocabulary) at a point of [0, 1) in the nucleus of mass `top_p`, by inverse CDF."""
    chances = torch.softmax(scores, dim=-1)
    if top_p >= 1:
        return _at(chances, points)[:, 0]
    ordered, order = chances.topk(min(_NUCLEUS_TOKENS, chances.shape[-1]), dim=-1)
    if float(ordered.sum(dim=-1).min()) < top_p:
        ordered, order = chances.sort(dim=-1, descending=True)
    mass = ordered.cumsum(dim=-1)
    ordered = torch.where(mass - ordered < top_p, ordered, 0.0)  # the first token is always kept
    return order.gather(-1, _at(ordered, points))[:, 0]


def _at(chances: Tensor, points: Tensor) -> Tensor:
    """The column (rows, 1) of each row at a point of [0, 1) of its mass: never one without any."""
    mass = chances.cumsum(dim=-1)
    found = torch.searchsorted(mass, (points.to(mass.dtype) * mass[:, -1])[:, None], right=True)
    last = chances.shape[-1] - 1 - (chances.flip(-1) > 0).to(torch.uint8).argmax(dim=-1, keepdim=True)
    return torch.minimum(found, last)


def _uniform(seed: int, step: int) -> float:
    """A number of [0, 1) from seed and position: the same wherever the draw takes place."""
    digest = hashlib.blake2b(f"{seed}/{step}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
