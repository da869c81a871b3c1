"""What post-training passes on: token rows, sampled turns, rollouts, checkpoints and their lineage.

Values only. Tokens are made once and never again: whatever was sampled travels as ids with its logprobs and
its mask, and text is derived from ids, not ids from text. Floats stand here (losses, logprobs); nothing of this enters
a record of the arena.
"""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from foundation.errors import ArenaError
from harness.chat import Message
from problems.model import Bucket

Stage = Literal["sft", "rejection", "teacher", "kto", "grpo"]


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rendered trace. `mask` is 1 on exactly the tokens an assistant sampled, its stop token among them."""

    trace_id: str
    token_ids: tuple[int, ...]
    mask: tuple[int, ...]
    prompt_length: int  # tokens before the first assistant turn


class UnfitRowError(ArenaError):
    """V2122: a trace that can't be a row, since it is too long or holds nothing to learn."""

    def __init__(self, detail: str) -> None:
        super().__init__("V2122", detail)


class Decode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How turns are sampled. `temperature` 0 is greedy."""

    temperature: Annotated[float, Meta(ge=0.0)] = 0.9  # paper B.3
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.95
    turn_tokens_max: Annotated[int, Meta(ge=1)] = 2_048
    turns_max: Annotated[int, Meta(ge=1)] = 8
    context_tokens_max: Annotated[int, Meta(ge=1)] = 32_768  # a breach ends the episode and is counted (paper B.6)


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
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

    def sample(self, prompt_ids: tuple[int, ...], decode: Decode, seed: int) -> Sampled:
        """One turn. Raises ArenaError for a sampler that is away (upstream) or broken (validator)."""
        ...


class ParsedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A sampled turn as text and calls. A call that is not well formed is in `malformed`, with why."""

    message: Message
    malformed: tuple[str, ...] = ()


class ChatCodec(Protocol):
    """Tokens of a chat format: rendering, masks, parsing, and continuing a conversation without tokenising it anew."""

    @property
    def identity_sha256(self) -> str:
        """Of tokenizer, template and renderer version: is in every lineage."""
        ...

    @property
    def stop_id(self) -> int:
        """The token that ends an assistant turn."""
        ...

    @property
    def template_only_ids(self) -> tuple[int, ...]:
        """Tokens that the template writes and a model must not: suppressed when sampling, a defect where sampled."""
        ...

    def prompt(self, messages: tuple[Message, ...], tools: str) -> tuple[int, ...]:
        """Ids up to and with the generation prompt."""
        ...

    def row(self, trace_id: str, messages: tuple[Message, ...], tools: str, tokens_max: int) -> TokenRow:
        """A whole trace with its mask. Raises UnfitRowError for one over `tokens_max`: nothing is ever cut."""
        ...

    def parse(self, token_ids: tuple[int, ...]) -> ParsedTurn:
        """A sampled turn read back."""
        ...

    def bridge(
        self, prompt_ids: tuple[int, ...], sampled: tuple[int, ...], messages: tuple[Message, ...], tools: str
    ) -> tuple[int, ...] | None:
        """The next prompt: `prompt_ids` + `sampled` + what the template writes for `messages`. None: not possible."""
        ...

    def decode(self, token_ids: tuple[int, ...]) -> str:
        """Text of ids, specials included."""
        ...


class RolloutTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One assistant turn of a rollout: where its tokens are in the completion, and what was called."""

    first: int
    last: int  # exclusive
    tools: tuple[tuple[str, str], ...]  # (name, arguments) of its calls
    malformed: int = 0


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
    taken: EpisodeSpend | None = None  # None: not recorded, by an earlier release


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """One episode as tokens, with its result: neutral between engines.

    `completion_ids` is everything after the prompt; `mask` is 1 on sampled tokens, whose logprobs are the sampler's;
    others have logprob 0.
    """

    result: EpisodeResult
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    turns: tuple[RolloutTurn, ...]


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run stood on."""

    code_commit: str
    packages: dict[str, str]
    device: str


class RunLineage(msgspec.Struct, frozen=True, kw_only=True):
    """Where a checkpoint comes from; its hash is the checkpoint's identity."""

    stage: Stage
    recipe_sha256: str
    recipe: str  # the TOML itself
    parent_sha256: str  # lineage of the parent checkpoint, or of the base model's weights
    corpus_sha256s: tuple[str, ...]
    codec_sha256: str
    partition_sha256: str
    seed: int
    versions: Versions
    weights_sha256: str
    steps: int
    metrics: dict[str, float] = {}
    dropped: dict[str, int] = {}  # rows and rollouts left out, by reason
    stopped_by: str = ""  # the guard that ended it early
    dev_sha256s: tuple[str, ...] = ()  # corpora of the `dev` pool, by which a rate was chosen
    problem_files: dict[str, str] = {}  # files of problems that it sampled on or was watched on: sha256 by file name


class ModelCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A model on disk: `folder` holds weights, tokenizer and `lineage.json`."""

    folder: str
    kind: Literal["adapter", "full"]
    lineage_sha256: str
