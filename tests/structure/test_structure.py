"""No figure of the shape may rise above `ratchet.json`; one that fell is written there with its change.

A change that adds a feature takes out as much elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.structure.figures import measure
from tests.structure.product import Product

HERE = Path(__file__).parent
RATCHET = msgspec.json.decode((HERE / "ratchet.json").read_bytes(), type=dict[str, int])


@pytest.fixture(scope="module")
def figures() -> dict[str, int]:
    return msgspec.structs.asdict(measure(Product(HERE.parents[1])))


@pytest.mark.parametrize("name", RATCHET)
def test_no_figure_rises(figures: dict[str, int], name: str) -> None:
    assert figures[name] <= RATCHET[name], "python -m tests.structure --details names what is counted"
