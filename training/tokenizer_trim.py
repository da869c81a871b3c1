"""A small Qwen3 tokenizer out of the real one: its first base tokens, all special tokens, the same chat template.

Promise: any text still round-trips (the first 256 base tokens are the bytes), specials keep their meaning under new
ids, and rendering, masks and parsing are the real code paths at a hundredth of the vocabulary's cost. For `smoke/` and
`study/` models only; nothing trained with it can be loaded with the real tokenizer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from problems.errors import ArenaError

BYTES = 256


def trim_tokenizer(source: Path, target: Path, *, keep: int) -> int:
    """Write the trimmed tokenizer and return its number of tokens. Raises ArenaError V2121.

    `keep` base tokens are kept, at least the 256 bytes; special tokens get the ids after them.
    """
    if keep < BYTES:
        raise ArenaError("V2121", f"{keep} tokens: the {BYTES} single bytes are needed")
    try:
        tokenizer = msgspec.json.decode((source / "tokenizer.json").read_bytes(), type=dict[str, Any])
        config = msgspec.json.decode((source / "tokenizer_config.json").read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise ArenaError("V2121", f"{source}: {error}") from error
    model = tokenizer["model"]
    kept = {token: number for token, number in model["vocab"].items() if number < keep}
    model["merges"] = [merge for merge in model["merges"] if _is_kept(merge, kept)]
    model["vocab"] = kept
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


def _is_kept(merge: str | list[str], kept: dict[str, int]) -> bool:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left in kept and right in kept and left + right in kept
