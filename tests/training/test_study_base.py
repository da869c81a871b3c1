"""What the study's base comes from: a tokenizer of the market's texts, drills, weights that quote early."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from tests.training.toy_study import TOKENIZER
from training.models.render import Qwen3Codec
from training.models.tiny_model import TinyShape, build_tiny_model
from training.models.tokenizer_trim import train_tokenizer
from training.study.base_model import PERIODS, drill_rows

_TEXTS = ['[{"product_id":"ka47","title":"kalorin desk lamp","price":120.0}]', "find a kalorin desk lamp"] * 20


def test_a_learnt_tokenizer_keeps_the_format_and_any_text_and_follows_from_its_texts(tmp_path: Path) -> None:
    for name in ("one", "other"):
        train_tokenizer(TOKENIZER, tmp_path / name, _TEXTS, keep=400)
    assert (tmp_path / "one" / "tokenizer.json").read_bytes() == (tmp_path / "other" / "tokenizer.json").read_bytes()
    codec = Qwen3Codec(tmp_path / "one")  # opens only where renderer and chat template agree
    for text in (*_TEXTS[:2], "日本 €\n\t<tool_call>", "Zürich 2046"):
        assert codec.decode(tuple(codec.tokenizer.encode(text))) == text
    assert len(codec.tokenizer.encode(" kalorin")) == 1 and len(codec.tokenizer.encode("2046")) == 4
    assert len(codec.tokenizer.encode(_TEXTS[0])) < len(Qwen3Codec(TOKENIZER).tokenizer.encode(_TEXTS[0]))


def test_a_learnt_tokenizer_needs_room_for_the_bytes_and_a_source(tmp_path: Path) -> None:
    with pytest.raises(ArenaError, match="V2121"):
        train_tokenizer(TOKENIZER, tmp_path / "small", _TEXTS, keep=255)
    with pytest.raises(ArenaError, match="V2121"):
        train_tokenizer(tmp_path / "nothing", tmp_path / "target", _TEXTS, keep=400)


@given(seed=st.integers(0, 1_000), length=st.integers(30, 80))
def test_a_drill_repeats_what_was_drawn_and_learns_nothing_else(seed: int, length: int) -> None:
    for row in drill_rows(3, length, 50, seed):
        period = row.prompt_length - 1
        assert PERIODS[0] <= period <= PERIODS[1] and len(row.token_ids) == length == len(row.mask)
        assert all(row.token_ids[place] == row.token_ids[place - period] for place in range(period, length))
        assert [place for place, bit in enumerate(row.mask) if bit] == list(range(period + 1, length))


def test_drills_follow_from_their_seed() -> None:
    assert drill_rows(2, 40, 50, 1) == drill_rows(2, 40, 50, 1) != drill_rows(2, 40, 50, 2)


def test_mimetic_weights_quote_after_a_few_steps_and_plain_ones_do_not(tmp_path: Path) -> None:
    shares = {}
    for is_mimetic in (True, False):
        folder = tmp_path / str(is_mimetic)
        shape = TinyShape(hidden=128, layers=2, head_dim=64, is_mimetic=is_mimetic)
        build_tiny_model(TOKENIZER, folder, shape, 3)
        shares[is_mimetic] = _quoted_after(folder, steps=40)
    assert shares[True] > 0.5 > 0.1 > shares[False]


def test_a_mimetic_start_needs_two_layers(tmp_path: Path) -> None:
    with pytest.raises(ArenaError, match="V2124"):
        build_tiny_model(TOKENIZER, tmp_path, TinyShape(hidden=128, layers=1, head_dim=64, is_mimetic=True), 3)


def _quoted_after(folder: Path, steps: int) -> float:
    """Share of repeated tokens that the model gets right on the drills of its last step."""
    from transformers import Qwen3ForCausalLM

    model = Qwen3ForCausalLM.from_pretrained(folder)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    share = 0.0
    for step in range(steps):
        rows = drill_rows(12, 64, 1_000, step)
        ids = torch.tensor([row.token_ids for row in rows])
        learnt = torch.tensor([row.mask for row in rows]).bool()[:, 1:]
        logits, wanted = model(input_ids=ids).logits[:, :-1][learnt], ids[:, 1:][learnt]
        torch.nn.functional.cross_entropy(logits, wanted).backward()
        optimiser.step()
        optimiser.zero_grad()
        share = float((logits.argmax(-1) == wanted).float().mean())
    return share
