"""Small Qwen3 tokenizers out of the real one: base tokens trained on texts of a market.

Any text still round-trips (the 256 bytes are among the base tokens), pre-tokenizer, specials and chat template
are Qwen3's, specials keep their meaning under new ids, and rendering, masks and parsing are the real code paths at a
hundredth of the vocabulary's cost. For `smoke/` and `study/` models only; nothing trained with it can be loaded with
the real tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from foundation.errors import ArenaError

BYTES = 256


def train_tokenizer(source: Path, target: Path, texts: Sequence[str], *, keep: int) -> int:
    """Write `source` with at most `keep` base tokens of its own, learnt from `texts`; return its number of tokens.

    Equal texts give equal files. Raises ArenaError V2121 for a source that can't be read or fewer than 256 tokens.
    """
    from tokenizers import Tokenizer, models, trainers

    _require_bytes(keep)
    tokenizer, config = _read(source)
    learnt: Any = Tokenizer(models.BPE())
    theirs = Tokenizer.from_file(str(source / "tokenizer.json"))
    learnt.normalizer, learnt.pre_tokenizer = theirs.normalizer, theirs.pre_tokenizer
    alphabet = sorted(token for token, number in tokenizer["model"]["vocab"].items() if number < BYTES)
    learnt.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=keep, initial_alphabet=alphabet, special_tokens=[], show_progress=False)
    )
    found = msgspec.json.decode(learnt.to_str(), type=dict[str, Any])["model"]
    tokenizer["model"]["vocab"], tokenizer["model"]["merges"] = found["vocab"], found["merges"]
    return _write(target, tokenizer, config)


def _require_bytes(keep: int) -> None:
    if keep < BYTES:
        raise ArenaError("V2121", f"{keep} tokens: the {BYTES} single bytes are needed")


def _read(source: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(tokenizer.json, tokenizer_config.json)."""
    try:
        tokenizer = msgspec.json.decode((source / "tokenizer.json").read_bytes(), type=dict[str, Any])
        config = msgspec.json.decode((source / "tokenizer_config.json").read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise ArenaError("V2121", f"{source}: {error}") from error
    return tokenizer, config


def _write(target: Path, tokenizer: dict[str, Any], config: dict[str, Any]) -> int:
    """Write both, special tokens renumbered to follow the base tokens; the number of all tokens."""
    keep = len(tokenizer["model"]["vocab"])
    renumbered: dict[int, int] = {}
    for offset, added in enumerate(sorted(tokenizer["added_tokens"], key=lambda one: one["id"])):
        renumbered[added["id"]] = keep + offset
        added["id"] = keep + offset
    config["added_tokens_decoder"] = {
        str(renumbered[int(number)]): entry for number, entry in config["added_tokens_decoder"].items()
    }
    target.mkdir(parents=True, exist_ok=True)
    for name, value in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        (target / name).write_bytes(msgspec.json.encode(value))
    return keep + len(renumbered)
