"""Opened models: rows of unequal length are computed together at no loss, of numbers or of work."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.training.stock import Stock
from training.models.opening import open_model

LENGTHS = (40, 23, 31)


@pytest.fixture(scope="module")
def opened(stock: Stock) -> Any:
    return open_model(str(stock.model), torch.float32)


@pytest.fixture
def rows() -> list[torch.Tensor]:
    dice = torch.Generator().manual_seed(5)
    return [torch.randint(10, 400, (length,), generator=dice) for length in LENGTHS]


def padded(rows: list[torch.Tensor], *, side: str, filler: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, mask), (rows, longest) each."""
    longest = max(map(len, rows))
    ids, mask = torch.full((len(rows), longest), filler), torch.zeros((len(rows), longest), dtype=torch.long)
    for number, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(longest - len(row), longest)
        ids[number, place], mask[number, place] = row, 1
    return ids, mask


def attended(model: Any, **given: Any) -> tuple[torch.Tensor, bool]:
    """(logits, whether the layers were given a mask)."""
    seen: list[bool] = []
    layer = model.model.layers[0]
    with torch.no_grad():
        watching = layer.register_forward_pre_hook(
            lambda module, one, named: seen.append(named.get("attention_mask") is not None), with_kwargs=True
        )
        logits = model(**given).logits
        watching.remove()
    return logits, seen[0]


def test_padding_on_the_right_changes_no_row_and_needs_no_mask(opened: Any, rows: list[torch.Tensor]) -> None:
    for filler in (3, 77):
        ids, mask = padded(rows, side="right", filler=filler)
        together, is_masked = attended(opened, input_ids=ids, attention_mask=mask)
        assert not is_masked
        for logits, row in zip(together, rows, strict=True):
            alone, _ = attended(opened, input_ids=row[None])
            assert torch.allclose(logits[: len(row)], alone[0], atol=1e-5)


def test_its_gradient_is_that_of_the_rows_one_by_one(opened: Any, rows: list[torch.Tensor]) -> None:
    def gradients(batches: list[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
        opened.zero_grad()
        for ids, mask in batches:
            labels = ids.masked_fill(mask == 0, -100)
            loss = opened(input_ids=ids, attention_mask=mask, labels=labels, num_items_in_batch=sum(LENGTHS)).loss
            loss.backward()
        return [weight.grad.clone() for weight in opened.parameters()]

    together = gradients([padded(rows, side="right")])
    for one, other in zip(together, gradients([padded([row], side="right") for row in rows]), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_rows_padded_on_the_left_keep_their_mask(opened: Any, rows: list[torch.Tensor]) -> None:
    ids, mask = padded(rows, side="left")
    logits, is_masked = attended(opened, input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1) * mask)
    assert is_masked
    for row, mine in zip(rows, logits, strict=True):
        alone, _ = attended(opened, input_ids=row[None])
        assert torch.allclose(mine[len(mine) - len(row) :], alone[0], atol=1e-5)
