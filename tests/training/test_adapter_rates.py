"""What a learning rate does to an adapter: B and its gradient start small, so a rate for all weights moves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tests.training.stock import TOKENIZER
from training.models.tiny_model import TinyShape, build_tiny_model
from training.recipe import read_recipe

PAPER = Path(__file__).parents[2] / "training" / "recipes" / "paper"
STEPS = 20  # section 6: the first twenty optimisation steps


def kl_of(folder: Path, lr: float, *, is_adapter: bool) -> float:
    """KL a token of the start to what STEPS of Adam on a fixed policy gradient make of it."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    rules = read_recipe(PAPER / "grpo_v18.toml").lora
    if is_adapter:
        torch.manual_seed(0)
        model = get_peft_model(
            model, LoraConfig(r=rules.r, lora_alpha=rules.alpha, target_modules=list(rules.targets), lora_dropout=0.0)
        )
    ids = torch.arange(4 * 48).reshape(4, 48) * 7 % 1_000
    advantages = torch.tensor([1.0, -1.0, 0.5, -0.5], dtype=torch.float64)[:, None]

    def logprobs() -> torch.Tensor:
        return model(input_ids=ids).logits[:, :-1].log_softmax(-1)  # type: ignore[no-any-return]

    with torch.no_grad():
        first = logprobs()
    optimiser = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=lr, weight_decay=0.0)
    for _ in range(STEPS):
        taken = logprobs().gather(-1, ids[:, 1:, None])[..., 0]
        (-(advantages * taken).mean()).backward()
        optimiser.step()
        optimiser.zero_grad()
    with torch.no_grad():
        return float((first.exp() * (first - logprobs())).sum(-1).mean())


def test_at_the_papers_rate_an_adapter_moves_a_twentieth_of_what_all_weights_do_and_at_ours_twenty_times_as_much(
    tmp_path: Path,
) -> None:
    torch.set_num_threads(1)
    build_tiny_model(TOKENIZER, tmp_path / "m", TinyShape(hidden=64, layers=2, spread=0.1), 0)
    whole, adapter, ours = (
        kl_of(tmp_path / "m", 5e-7, is_adapter=False),
        kl_of(tmp_path / "m", 5e-7, is_adapter=True),
        kl_of(tmp_path / "m", read_recipe(PAPER / "grpo_v18.toml").optim.lr, is_adapter=True),
    )
    assert 0.02 < adapter / whole < 0.1, (adapter, whole)
    assert 5 < ours / whole < 80, (ours, whole)
