"""A small Qwen3 of random weights, for `smoke/` and studies, and tokenizers out of the real one for it.

The architecture, the tokenizer's specials and the padding of the embedding rows are a real Qwen3's, so that code which
confuses the tokenizer's length with the model's vocabulary fails here first. On demand its random weights are given the
shape of a trained model's first circuit (mimetic initialisation, arXiv 2305.09828): it learns to quote in minutes,
where weights without it take hours. A tokenizer keeps Qwen3's pre-tokenizer, specials and chat template around base
tokens learnt from texts; any text still round-trips.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from foundation.durable_files import move_into_place
from foundation.errors import ArenaError
from training.run import copy_tokenizer


def train_tokenizer(source: Path, target: Path, texts: Sequence[str], *, keep: int) -> int:
    """Write `source` with at most `keep` base tokens of its own, learnt from `texts`; return its number of tokens.

    Equal texts give equal files. `keep` is at least 256: the single bytes are needed.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    theirs = Tokenizer.from_file(str(source / "tokenizer.json"))
    learnt: Any = Tokenizer(models.BPE())
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        setattr(learnt, part, getattr(theirs, part))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learnt.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=keep, initial_alphabet=alphabet, special_tokens=[], show_progress=False)
    )
    learnt.add_tokens([token for _, token in sorted(theirs.get_added_tokens_decoder().items())])  # behind the base's
    config = msgspec.json.decode((source / "tokenizer_config.json").read_bytes(), type=dict[str, Any])
    entries = {learnt.token_to_id(entry["content"]): entry for entry in config["added_tokens_decoder"].values()}
    config["added_tokens_decoder"] = {str(number): entries[number] for number in sorted(entries)}
    target.mkdir(parents=True, exist_ok=True)
    learnt.save(str(target / "tokenizer.json"))
    (target / "tokenizer_config.json").write_bytes(msgspec.json.encode(config))
    return int(learnt.get_vocab_size())


_ROWS = 64  # embedding rows are a multiple of this

# Of the mimetic start: sizes at which both heads are sharp from the first step, found by trial.
_CONSTANTS, _CONSTANT, _TOKEN_SPREAD = 8, 0.08, 0.06
_FAINT = 0.1  # what is left of the random weights of a shaped head
_SHARP_BEFORE, _SHARP_ALIKE = 1.8, 1.6  # of queries and keys
_QUOTED, _SURENESS = 4.0, 2.5  # how loud a quoted token is, and all logits


class TinyShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the model, and the standard deviation of its random weights. `heads` is a multiple of `kv_heads`.

    `head_dim` 0: `hidden` shared out among the heads.
    """

    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 0
    spread: float = 0.02
    is_mimetic: bool = False
    context: int = 32_768


def build_tiny_model(tokenizer_dir: Path, target: Path, shape: TinyShape, seed: int) -> int:
    """Save model and tokenizer to `target` and return the number of parameters.

    Raises ArenaError V2124 for a mimetic shape too small for its two heads.
    """
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    tokenizer: Any = AutoTokenizer.from_pretrained(str(tokenizer_dir), local_files_only=True)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=-(-len(tokenizer) // _ROWS) * _ROWS,
        hidden_size=shape.hidden,
        intermediate_size=3 * shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim or shape.hidden // shape.heads,
        initializer_range=shape.spread,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    if shape.is_mimetic:
        shape_quoting(model)
    target.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(str(target))
    copy_tokenizer(tokenizer_dir, target)
    return int(model.num_parameters())


@torch.no_grad()
def shape_quoting(model: Any) -> None:
    """Give the first head of the first two layers the shape of an induction circuit; everything else stays random.

    Of the hidden size, one part holds what a token is, a second what the token before was, and a small third is one
    constant, which lets a head attend by position alone. Raises ArenaError V2124 for fewer than two layers, or heads
    that can't carry a token's part.
    """
    config = model.config
    width, head = config.hidden_size, config.head_dim
    part = (width - _CONSTANTS) // 2
    if config.num_hidden_layers < 2 or head < part or part <= 0:
        raise ArenaError("V2124", f"two layers and heads of {part} are needed, not {config.num_hidden_layers}, {head}")
    own, before, constant = slice(0, part), slice(part, 2 * part), slice(2 * part, width)
    table = model.model.embed_tokens.weight
    table[:, own].normal_(0.0, _TOKEN_SPREAD)
    table[:, before] = 0.0
    table[:, constant] = _CONSTANT
    scale = ((part * _TOKEN_SPREAD**2 + (width - 2 * part) * _CONSTANT**2) / width) ** 0.5  # what a norm divides by
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    _attend_before(first, head, constant, _CONSTANT / scale, float(config.rope_parameters["rope_theta"]))
    _carry(first, head, part, own, before, scale)
    _attend_alike(second, head, part, own, before)
    _carry(second, head, part, own, own, _QUOTED * scale)
    model.model.norm.weight.fill_(_SURENESS)


def _attend_before(attention: Any, head: int, constant: slice, value: float, theta: float) -> None:
    """The first head's queries, turned by one position, are its keys: rotation makes them meet one token earlier."""
    half = head // 2
    turns = theta ** (-torch.arange(half) / half)
    used = (torch.arange(half) < half * 3 // 8).float()  # the fast ones: they tell neighbours apart
    query = torch.cat([used * torch.cos(turns), -used * torch.sin(turns)])
    key = torch.cat([used, torch.zeros(half)])
    for matrix, direction in ((attention.q_proj.weight, query), (attention.k_proj.weight, key)):
        matrix[:head] *= _FAINT
        matrix[:head, constant] = direction[:, None] / (_CONSTANTS * value)
    attention.q_norm.weight.fill_(_SHARP_BEFORE)
    attention.k_norm.weight.fill_(_SHARP_BEFORE)


def _attend_alike(attention: Any, head: int, part: int, own: slice, before: slice) -> None:
    """The first head asks with what a token is for tokens before which the same stood."""
    half = head // 2
    slow = [*range(half * 7 // 16, half), *range(half + half * 7 // 16, head)]  # rotation hardly moves these
    chosen = torch.zeros(head, part)
    for column, row in enumerate(slow[:part]):
        chosen[row, column] = 1.0
    for matrix, read in ((attention.q_proj.weight, own), (attention.k_proj.weight, before)):
        matrix[:head] *= _FAINT
        matrix[:head, read] = chosen
    attention.q_norm.weight.fill_(_SHARP_ALIKE)
    attention.k_norm.weight.fill_(_SHARP_ALIKE)


def _carry(attention: Any, head: int, part: int, read: slice, written: slice, gain: float) -> None:
    """The first head's values are one part of what it attends to, written to another."""
    attention.v_proj.weight[:head] *= _FAINT
    attention.v_proj.weight[:part, read] = torch.eye(part)
    attention.o_proj.weight[:, :head] *= _FAINT
    attention.o_proj.weight[written, :part] = gain * torch.eye(part)


def make_starting_model(folder: Path, tokenizer: Path) -> int:
    """A small Qwen3 of random weights with `tokenizer`, to start from, in `folder`: whole or not at all. The number of
    weights. Raises OSError."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    scratch = folder.with_name(f"{folder.name}.part")
    count = build_tiny_model(tokenizer, scratch, TinyShape(), 0)
    move_into_place(scratch, folder)
    return count
