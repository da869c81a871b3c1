"""A tokenizer learnt from texts, and a model that quotes early."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from foundation.errors import ArenaError
from tests.training.stock import TOKENIZER
from training.models.tiny_model import TinyShape, build_tiny_model, train_tokenizer

TEXTS = [f"a red lamp of {number} watts in a shop of lamps" for number in range(40)]


def test_equal_texts_give_an_equal_tokenizer_that_reads_its_texts_back(tmp_path: Path) -> None:
    counts = [train_tokenizer(TOKENIZER, tmp_path / name, TEXTS, keep=300) for name in ("one", "two")]
    assert (tmp_path / "one" / "tokenizer.json").read_bytes() == (tmp_path / "two" / "tokenizer.json").read_bytes()
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path / "one"))
    assert counts == [len(tokenizer)] * 2 and len(tokenizer) < len(AutoTokenizer.from_pretrained(str(TOKENIZER)))
    text = f"<|im_start|>{TEXTS[7]} \U0001f600<|im_end|>"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text and len(ids) < len(text)


def quoted_after(folder: Path, steps: int) -> float:
    """Share of repeated tokens that the model says in its last step, of drills that repeat what was drawn."""
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    draw, share = torch.Generator().manual_seed(0), 0.0
    for _ in range(steps):
        ids = torch.randint(model.config.vocab_size, (12, 24), generator=draw).repeat(1, 3)[:, :64]
        logits, wanted = model(input_ids=ids).logits[:, 24:-1], ids[:, 25:]
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten()).backward()
        optimiser.step()
        optimiser.zero_grad()
        share = float((logits.argmax(-1) == wanted).float().mean())
    return share


def test_mimetic_weights_quote_after_a_few_steps_and_plain_ones_do_not(tmp_path: Path) -> None:
    train_tokenizer(TOKENIZER, tmp_path / "few", TEXTS, keep=300)
    shares = {}
    for is_mimetic in (True, False):
        shape = TinyShape(hidden=128, layers=2, head_dim=64, is_mimetic=is_mimetic)
        build_tiny_model(tmp_path / "few", tmp_path / str(is_mimetic), shape, 3)
        shares[is_mimetic] = quoted_after(tmp_path / str(is_mimetic), 40)
    assert shares[True] > 0.5 > 0.1 > shares[False]
    with pytest.raises(ArenaError, match="V2124"):
        build_tiny_model(TOKENIZER, tmp_path / "flat", TinyShape(hidden=128, layers=1, head_dim=64, is_mimetic=True), 0)
