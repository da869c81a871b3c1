"""What post-training passes on: token rows, sampled turns, rollouts.

Values only. Tokens are made once and never again: whatever was sampled travels as ids with its logprobs and
its mask, and text is derived from ids, not ids from text. Floats stand here (losses, logprobs); nothing of this enters
a record of the arena.
"""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from problems.model import Bucket

TrainingStage = Literal["sft", "rejection", "teacher", "kto", "grpo"]


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rendered trace. `mask` is 1 on exactly the tokens an assistant sampled, its stop token among them."""

    trace_id: str
    token_ids: tuple[int, ...]
    mask: tuple[int, ...]
    prompt_length: int  # tokens before the first assistant turn
    bucket: Bucket | None = None
    is_wanted: bool = True  # False: of an episode that failed, for KTO to learn from


class UnfitRowError(ValueError):
    """A trace that can't be a row, since it is too long or holds nothing to learn."""


class Decode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How turns are sampled. `temperature` 0 is greedy."""

    temperature: Annotated[float, Meta(ge=0.0)] = 0.9  # paper B.3
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.95
    turn_tokens_max: Annotated[int, Meta(ge=1)] = 2_048
    turns_max: Annotated[int, Meta(ge=1)] = 8
    context_tokens_max: Annotated[int, Meta(ge=1)] = 32_768  # a breach ends the episode and is counted (paper B.6)


class TurnSample(msgspec.Struct, frozen=True, kw_only=True):
    """One turn from a sampler. `logprobs` are of the distribution it was drawn from."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Literal["stop", "length"]


class Sampler(Protocol):
    """A policy that continues token ids. Dropout is off whenever it samples."""

    @property
    def version(self) -> str:
        """Identity of the weights: a new name for every version of an adapter."""
        ...

    def sample(self, prompt_ids: tuple[int, ...], decode: Decode, seed: int) -> TurnSample:
        """One turn. Raises ArenaError for a sampler that is away (upstream) or broken (validator)."""
        ...


class RolloutTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One assistant turn of a rollout: where its tokens are in the completion, and what was called."""

    first: int
    last: int  # exclusive
    tools: tuple[tuple[str, str], ...]  # (name, arguments) of its calls


class EpisodeSpend(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode took. Time is the host's clock; None where an episode is to be the same bytes anywhere."""

    prompt_tokens: int
    completion_tokens: int
    cost_micro_usd: int
    episode_ms: int | None = None


class EpisodeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one episode of a policy, tokens aside. `reward` None: unscored, through no fault of its own."""

    problem_id: str
    bucket: Bucket
    sample: int  # 0 .. k-1
    seed: int
    version: str  # of the sampler
    stop: str
    steps: int
    is_overflow: bool = False  # the conversation outgrew the context
    is_recommending: bool = False
    reward: float | None = None  # bucket-aware, 0..1
    is_success: bool | None = None
    is_gt_exact: bool | None = None
    rule: float | None = None
    axes: dict[str, tuple[int, int]] = {}  # hits, total
    hallucinated: int = 0  # ids recommended or viewed that no search of the episode surfaced
    body_sha256: str = ""
    taken: EpisodeSpend = EpisodeSpend(prompt_tokens=0, completion_tokens=0, cost_micro_usd=0)

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells it from the other episodes of its run; its job has the same."""
        return self.problem_id, self.sample, self.seed


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """One episode as tokens: neutral between engines.

    `completion_ids` is everything after the prompt; `mask` is 1 on sampled tokens, whose logprobs are the sampler's;
    others have logprob 0.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    turns: tuple[RolloutTurn, ...]
