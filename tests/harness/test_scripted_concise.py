"""The concise scripted model: what a small model can imitate in two hundred tokens."""

from __future__ import annotations

import json
from pathlib import Path

from harness.inference.scripted import MODELS
from harness.inference.scripted.shopper import CONCISE
from problems.synthesis import synthesize
from tests.harness.catalogue_stand import catalogue_of
from tests.harness.test_inference_scripted import Run, share, synthetic_shelf


def test_the_concise_model_says_one_sentence_of_two_hits_and_is_not_listed(tmp_path: Path) -> None:
    shelf = synthetic_shelf(3_000, 5)
    problems = synthesize(shelf, seed=17, counts={"product": 12, "shop": 12, "voucher": 12})
    catalogue = catalogue_of(shelf.products, tmp_path)
    found = [Run(CONCISE, problem, catalogue, "compact") for problem in problems]
    assert share(found) >= 0.8 and CONCISE not in MODELS
    for run in found:
        said = [thought for thought in run.thoughts if thought]
        assert len(said) == 1 and set(run.names) == {"find_product", "recommend_product", "terminate"}
        rows = [row for result in run.results if result.startswith("[") for row in json.loads(result)]
        if "the only hit" not in said[0]:
            assert sum(f"{row['price']} PHP" in said[0] for row in rows) >= 2  # both stand in a result
