"""What qualifying on variants is for: a table of the public suite gains nothing there, however it is keyed or hidden,
and an honest agent scores as before. The control is the same table on the suite itself, where it gains a lot."""

from __future__ import annotations

import base64
import json
import types
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from arena.policies import DEMO
from arena.race.draw import qualifying_seed
from harness.agents.registry import baseline_source, reference_agent
from harness.catalogue.port import Catalogue
from harness.catalogue.synthetic import generate
from harness.inference.scripted.model import ScriptedUpstream
from harness.sandbox.port import EpisodeOver, GuestCallError, GuestExit, GuestJob, Host, SandboxLevel
from neurons.settings.inputs import SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED
from problems.model import OutcomeScore, Problem, Product
from problems.suites import Variant, VariantMaker, load_shipped
from problems.title_index import TitleIndex
from problems.titles import TitleMatcher
from tests.harness.catalogue_stand import catalogue_of

# -- agents that carry a table of the public suite: they shop by it where it has an entry, and as the shipped agents do
# where it has none; with an empty table each is the honest agent it is compared with
KINDS = ("query to titles", "nearest query", "all that would do")

# What every one of them begins with: the table, hidden as well as a reader could wish, and how an entry is found.
_LOOKUP = """
import base64, json, re, zlib

TABLE = json.loads(zlib.decompress(base64.b85decode("{packed}")))


def words_of(text):
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def looked_up(problem):
    for key in (problem["problem_id"], problem["query"]):
        if key in TABLE:
            return TABLE[key]
    if {is_nearest} and TABLE:
        said = words_of(problem["query"])
        return TABLE[max(TABLE, key=lambda key: (len(said & words_of(key)) / len(said | words_of(key)), key))]
    return None
"""

# An item of an entry is a list of [product_id, title]: one answer, or all that might be asked for.
_BY_TABLE = """

def by_table(problem, entry):
    chosen = []
    for options in entry:
        hits = [hit for _, title in options for hit in found(title)]
        wanted = [hit for hit in hits if hit["product_id"] in [product_id for product_id, _ in options]]
        if not wanted:
            return False
        chosen.append(best(problem["query"], wanted)["product_id"])
    tools.recommend_product(product_ids=",".join(chosen))
    tools.terminate(status="success")
    return True


def found(title):
    hits = tools.find_product(q=title, page=1)
    return hits if isinstance(hits, list) else []


def best(query, hits):
    said = words_of(query)
    return max(hits, key=lambda hit: (len(said & words_of(hit["title"])), hit["product_id"]))


def agent_main(problem):
    entry = looked_up(problem)
    if entry is None or not by_table(problem, entry):
        honest_main(problem)
"""


def table_agent(kind: str, rows: Sequence[Problem], shelf: TitleIndex, honest: str) -> str:
    """The source of an agent of that kind with a table of `rows`, over the source `honest`. No rows: an empty table."""
    table = {key: _entry(kind, one, shelf) for one in rows for key in (one.problem_id, one.query)}
    packed = base64.b85encode(zlib.compress(json.dumps(table).encode())).decode()
    base = honest.replace("def agent_main(", "def honest_main(")
    lookup = _LOOKUP.replace("{packed}", packed).replace("{is_nearest}", str(kind == "nearest query"))
    return base.replace("\nfrom arena_sdk", lookup + "\nfrom arena_sdk", 1) + _BY_TABLE


def _entry(kind: str, problem: Problem, shelf: TitleIndex) -> list[list[tuple[str, str]]]:
    """Per item the answer, or everything that would satisfy the item without one of its constraints."""
    entry = []
    for item in problem.rewards:
        answer = shelf.product(item.product_id)
        assert answer is not None
        others: tuple[Product, ...] = shelf.accepted(item) if kind == "all that would do" else ()
        options = [answer, *(one for one in others if one.product_id != answer.product_id)]
        entry.append([(one.product_id, one.title) for one in options])
    return entry


# -- what they gain
GUEST = Path(__file__).parents[2] / "harness" / "sandbox" / "guest"
SUITE = load_shipped("s1")
SEED = qualifying_seed("s1", f"{0:064x}", "0x" + "ab" * 32)
ON_SUITE = [(problem, SUITE.titles) for problem in SUITE.problems]
HONEST = {"baseline": baseline_source("scripted-careful"), "subtask": reference_agent("subtask").source}
Asked = Iterable[tuple[Problem, TitleMatcher]]


class DirectSandbox:
    """Runs an agent in this process: for sources written in these tests, which touch nothing but the SDK."""

    level = SandboxLevel(
        name="reference-agents-only", layers=(), guest_sha256="0" * 64, python_version="3", may_race=False
    )

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        from arena_sdk import ToolError, _link  # type: ignore[attr-defined]

        def transport(method: str, params: dict[str, object]) -> object:
            try:
                return host.call(method, json.loads(json.dumps(params)))
            except GuestCallError as refused:
                raise ToolError(refused.code, refused.message) from refused

        _link.transport, _link.schemas, _link.models = transport, job.tools, job.models
        module = types.ModuleType("agent")
        exec(compile(job.source, "agent.py", "exec"), module.__dict__)
        try:
            module.agent_main(json.loads(job.problem))
        except EpisodeOver:
            return GuestExit(end="stopped")
        return GuestExit(end="final", claim="null")


class Ground:
    """The suite's catalogue, on which agents are run."""

    def __init__(self, products: Iterable[Product], folder: Path) -> None:
        self.catalogue: Catalogue = catalogue_of(products, folder)

    def run(self, source: str, problem: Problem, titles: TitleMatcher) -> Evaluation:
        """One episode, scored and not judged."""
        ports = EvaluatePorts(
            policy=DEMO,
            catalogue=self.catalogue,
            titles=titles,
            sandbox=DirectSandbox(),
            upstreams=[ScriptedUpstream()],
            judges=(),
        )
        found = evaluate(source, problem, ports)
        assert found.body.failure is None, found.body.failure
        return found

    def count(self, source: str, asked: Asked) -> int:
        """How many of the problems an agent solves."""
        outcomes = [self.run(source, problem, titles).outcome for problem, titles in asked]
        return sum(isinstance(outcome, OutcomeScore) and outcome.is_success for outcome in outcomes)


@pytest.fixture(scope="module")
def products() -> tuple[Product, ...]:
    return tuple(generate(SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED))


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
    return [maker.variant(problem.problem_id, SEED) for problem in SUITE.problems]


@pytest.fixture(scope="module")
def solved(ground: Ground, variants: list[Variant]) -> dict[str, tuple[int, int]]:
    """Of each honest agent, how many problems of the suite and how many variants of them it solves."""
    asked = [(one.problem, one.titles) for one in variants]
    return {name: (ground.count(source, ON_SUITE), ground.count(source, asked)) for name, source in HONEST.items()}


@pytest.fixture(scope="module", autouse=True)
def _sdk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(GUEST))
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("honest", HONEST)
def test_a_table_of_the_suite_gains_on_the_suite_and_nothing_on_variants(
    ground: Ground,
    shelf: TitleIndex,
    variants: list[Variant],
    solved: dict[str, tuple[int, int]],
    kind: str,
    honest: str,
) -> None:
    full, empty = (table_agent(kind, rows, shelf, HONEST[honest]) for rows in (SUITE.problems, ()))
    gain_on_suite = ground.count(full, ON_SUITE) - solved[honest][0]
    asked = [(one.problem, one.titles) for one in variants]
    assert gain_on_suite >= 5, "the control: a table that gains nothing on the suite would prove nothing"
    assert ground.count(full, asked) <= solved[honest][1]
    if kind != "nearest query":  # which may find another problem's entry
        for one in asked[:6]:
            assert ground.run(full, *one).body.events == ground.run(empty, *one).body.events


@pytest.mark.parametrize(("honest", "least"), [("baseline", 0.3), ("subtask", 0.55)])
def test_an_honest_agent_scores_on_variants_as_on_the_suite(
    solved: dict[str, tuple[int, int]], honest: str, least: float
) -> None:
    """Within what chance explains of 30 problems each; the figures over 600 are in `problems/README.md`."""
    on_suite, on_variants = (count / len(ON_SUITE) for count in solved[honest])
    assert on_suite >= least
    assert abs(on_variants - on_suite) <= 0.25


def test_the_seed_is_one_for_all_validators_and_another_for_every_agent_suite_and_block() -> None:
    seed = qualifying_seed("s1", "ab", "0xFF01")
    assert seed == qualifying_seed("s1", "ab", "ff01")
    others = [qualifying_seed(*parts) for parts in (("s2", "ab", "ff01"), ("s1", "ac", "ff01"), ("s1", "ab", "ff02"))]
    assert len({seed, *others}) == 4
    assert seed == "842f3877b7dc09870cd8bbf9b16f9ca720292293a8816e2cc9890bfeb6dacba9"
