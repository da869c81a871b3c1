"""How the smoke models' tokenizer was made: Qwen3's own, cut to its first base tokens."""

from __future__ import annotations

from pathlib import Path

from training.models.tokenizer_trim import _read, _require_bytes, _write


def trim_tokenizer(source: Path, target: Path, *, keep: int) -> int:
    """Write the trimmed tokenizer and return its number of tokens. Raises ArenaError V2121.

    `keep` base tokens are kept, at least the 256 bytes; special tokens get the ids after them.
    """
    _require_bytes(keep)
    tokenizer, config = _read(source)
    model = tokenizer["model"]
    kept = {token: number for token, number in model["vocab"].items() if number < keep}
    model["merges"] = [merge for merge in model["merges"] if _is_kept(merge, kept)]
    model["vocab"] = kept
    return _write(target, tokenizer, config)


def _is_kept(merge: str | list[str], kept: dict[str, int]) -> bool:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left in kept and right in kept and left + right in kept
