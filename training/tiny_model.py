"""A small Qwen3 of random weights: what `smoke/` trains, and what `study/` starts from.

Promise: the architecture, the tokenizer's specials and the padding of the embedding rows are a real Qwen3's, so that
code which confuses the tokenizer's length with the model's vocabulary fails here first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import torch

_ROWS = 64  # embedding rows are a multiple of this
_HEADS, _KV_HEADS = 4, 2


class TinyShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the model. `hidden` is a multiple of the four attention heads."""

    hidden: int = 64
    layers: int = 2
    context: int = 32_768


def build_tiny_model(tokenizer_dir: Path, target: Path, shape: TinyShape, seed: int) -> int:
    """Save model and tokenizer to `target` and return the number of parameters."""
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    tokenizer: Any = AutoTokenizer.from_pretrained(str(tokenizer_dir), local_files_only=True)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=-(-len(tokenizer) // _ROWS) * _ROWS,
        hidden_size=shape.hidden,
        intermediate_size=3 * shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=_HEADS,
        num_key_value_heads=_KV_HEADS,
        head_dim=shape.hidden // _HEADS,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    target.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(str(target))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (target / name).write_bytes((tokenizer_dir / name).read_bytes())
    return int(model.num_parameters())
