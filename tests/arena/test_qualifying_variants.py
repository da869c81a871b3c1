"""What qualifying on variants is for: a table of the public suite gains nothing there, however it is keyed or hidden,
and an honest agent scores as before. The control is the same table on the suite itself, where it gains a lot."""

from __future__ import annotations

import pytest

from arena.race.draw import qualifying_seed
from harness.agents.registry import baseline_source, reference_agent
from problems.model import Product
from problems.suites import Variant, VariantMaker
from problems.title_index import TitleIndex
from tests.arena.qualifying_stand import GUEST, SUITE, Ground, suite_products
from tests.arena.table_agents import KINDS, table_agent

SEEDS = tuple(qualifying_seed("s1", f"{agent:064x}", "0x" + "ab" * 32) for agent in range(1))
ON_SUITE = [(problem, SUITE.titles) for problem in SUITE.problems]
HONEST = {"baseline": baseline_source("scripted-careful"), "subtask": reference_agent("subtask").source}


@pytest.fixture(scope="module")
def products() -> tuple[Product, ...]:
    return suite_products()


@pytest.fixture(scope="module")
def shelf(products: tuple[Product, ...]) -> TitleIndex:
    return TitleIndex(products)


@pytest.fixture(scope="module")
def ground(products: tuple[Product, ...], tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(products, tmp_path_factory.mktemp("qualifying"))


@pytest.fixture(scope="module")
def variants(products: tuple[Product, ...]) -> list[Variant]:
    """Those of one agent."""
    maker = VariantMaker(SUITE.problems, products)
    return [maker.variant(problem.problem_id, seed) for seed in SEEDS for problem in SUITE.problems]


@pytest.fixture(autouse=True)
def _sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GUEST))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("honest", HONEST)
def test_a_table_of_the_suite_gains_on_the_suite_and_nothing_on_variants(
    ground: Ground, shelf: TitleIndex, variants: list[Variant], kind: str, honest: str
) -> None:
    full, empty = (table_agent(kind, rows, shelf, HONEST[honest]) for rows in (SUITE.problems, ()))
    gain_on_suite = ground.count(full, ON_SUITE) - ground.count(empty, ON_SUITE)
    asked = [(one.problem, one.titles) for one in variants]
    assert gain_on_suite >= 5, "the control: a table that gains nothing on the suite would prove nothing"
    assert ground.count(full, asked) <= ground.count(empty, asked)
    if kind not in ("nearest query", "words to titles"):  # which may find another problem's entry
        assert all(ground.run(full, one).events == ground.run(empty, one).events for one, _ in asked[:6])


@pytest.mark.parametrize(("honest", "least"), [("baseline", 0.3), ("subtask", 0.55)])
def test_an_honest_agent_scores_on_variants_as_on_the_suite(
    ground: Ground, variants: list[Variant], honest: str, least: float
) -> None:
    """Within what chance explains of 30 problems each; the figures over 600 are in `problems/README.md`."""
    on_suite = ground.count(HONEST[honest], ON_SUITE) / len(ON_SUITE)
    on_variants = ground.count(HONEST[honest], [(one.problem, one.titles) for one in variants]) / len(variants)
    assert on_suite >= least
    assert abs(on_variants - on_suite) <= 0.25


def test_the_seed_is_one_for_all_validators_and_another_for_every_agent_suite_and_block() -> None:
    seed = qualifying_seed("s1", "ab", "0xFF01")
    assert seed == qualifying_seed("s1", "ab", "ff01")
    others = [qualifying_seed(*parts) for parts in (("s2", "ab", "ff01"), ("s1", "ac", "ff01"), ("s1", "ab", "ff02"))]
    assert len({seed, *others}) == 4
    assert seed == "842f3877b7dc09870cd8bbf9b16f9ca720292293a8816e2cc9890bfeb6dacba9"
