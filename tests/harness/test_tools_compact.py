"""The compact profile: the same four tools in few tokens, which find, surface and recommend as those of `paper4` do."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.catalogue.port import Catalogue
from harness.catalogue.synthetic import generate
from harness.tools.compact import HITS_MAX
from harness.tools.registry import make_toolbox, profile_schemas, profile_tools
from tests.harness.catalogue_stand import catalogue_of
from tests.harness.test_tools import PROBLEM, call


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    folder: Path = tmp_path_factory.mktemp("compact")
    return catalogue_of(list(generate(400, 3)), folder)


def test_two_of_its_pages_are_one_of_the_catalogues(catalogue: Catalogue) -> None:
    long, short = (make_toolbox(profile, catalogue, PROBLEM) for profile in ("paper4", "compact"))
    for page in (1, 2):
        rows, whole = call(long, "find_product", q="bag", page=page)
        parts = [call(short, "find_product", q="bag", page=number) for number in (2 * page - 1, 2 * page)]
        assert [len(found) <= HITS_MAX for found, _ in parts] == [True, True]
        assert sum((outcome.found_ids for _, outcome in parts), ()) == whole.found_ids
        fields = ("product_id", "shop_id", "title", "price")
        assert [row for found, _ in parts for row in found] == [{name: row[name] for name in fields} for row in rows]
    assert whole.found_ids  # the second page holds something


def test_filters_hold_though_a_hit_does_not_repeat_them(catalogue: Catalogue) -> None:
    tools = make_toolbox("compact", catalogue, PROBLEM)
    hits, outcome = call(tools, "find_product", q="bag", price="0-300", service="COD")
    assert hits and all(hit["price"] <= 300 for hit in hits)
    assert all("COD" in (catalogue.product(one) or pytest.fail(one)).service for one in outcome.found_ids)
    assert call(tools, "find_product", q="bag", price="cheap")[1].ignored_parameters == ("price",)


def test_details_recommendation_and_end_are_those_of_the_paper_profile(catalogue: Catalogue) -> None:
    long, short = (make_toolbox(profile, catalogue, PROBLEM) for profile in ("paper4", "compact"))
    ids = call(long, "find_product", q="bag")[1].found_ids[:2]
    (first, _), (whole, _) = (call(one, "view_product_information", product_ids=",".join(ids)) for one in (short, long))
    assert [(row["sku_options"], row["attributes"]) for row in first] == [
        (row["sku_options"], row["attributes"]) for row in whole
    ]
    for name, arguments in (("recommend_product", {"product_ids": ids[0]}), ("terminate", {"status": "success"})):
        assert call(short, name, **arguments)[1] == call(long, name, **arguments)[1]
    assert list(profile_tools("compact")) == list(profile_tools("paper4"))
    assert len(profile_schemas("compact")) < 0.6 * len(profile_schemas("paper4"))
