"""The funnel report: one funnel, three forms that agree, and a page that needs nothing but itself."""

from __future__ import annotations

import html.parser
import re
from xml.etree import ElementTree

import msgspec
import pytest

from tests.training.labelled import make_labelled, select, stand_guard
from training.charts import NO_MATPLOTLIB
from training.corpus.appraisal import Task
from training.corpus.funnel import Funnel
from training.corpus.model import Lineage, Rules
from training.corpus.report import (
    length_bins,
    percent,
    plain_text,
    render_page,
    sections,
    steps,
)

LINEAGE = Lineage(
    rules=Rules(),
    sources=("ab" * 32,),
    is_trusted_unsigned=False,
    tokenizer_sha256="stand-in/1",
    partition_sha256="cd" * 32,
    code_commit="f6",
    rows_sha256="ef" * 32,
)
HOSTILE = '<script>alert(1)</script>"\n\x1b[31m'


def funnel_under(rules: Rules, count: int = 300) -> Funnel:
    traces = [one.trace for one in make_labelled(count, seed=11)]
    return select([lambda: traces], Task(arms=(rules,)), stand_guard).funnels[0]


@pytest.fixture(scope="module")
def funnel() -> Funnel:
    return funnel_under(Rules())


@pytest.fixture(scope="module")
def page(funnel: Funnel) -> str:
    return render_page(LINEAGE, funnel)


def svgs(text: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(one) for one in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def extents(svg: ElementTree.Element) -> list[tuple[str, float, float]]:
    """Style, left and right of each drawn shape."""
    found = []
    for path in svg.iter("path"):
        xs = [float(x) for x, _ in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d") or "")]
        found.append((path.get("style") or "", min(xs), max(xs)))
    return found


def with_agent_named(funnel: Funnel, name: str) -> Funnel:
    first = msgspec.structs.replace(funnel.agents[0], name=name, traces=10**6)
    return msgspec.structs.replace(funnel, agents=(first, *funnel.agents[1:]))


def test_the_steps_go_from_all_traces_to_the_kept_ones(funnel: Funnel) -> None:
    lefts = [left for _, _, left in steps(funnel)]
    assert lefts[-1] == funnel.kept
    assert lefts == sorted(lefts, reverse=True)


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "-"), (0, 5, "0.0 %"), (1, 3, "33.3 %"), (1, 5_000, "<0.1 %"), (5, 5, "100.0 %")],
)
def test_a_share_says_when_it_is_small_or_of_nothing(part: int, whole: int, text: str) -> None:
    assert percent(part, whole) == text


def test_lengths_come_first_and_every_code_has_its_line(funnel: Funnel) -> None:
    text = plain_text(sections(funnel))
    assert text.startswith("Length in tokens")
    assert "14,336" in text
    assert all(re.search(rf"^  {one.code} ", text, re.MULTILINE) for one in funnel.codes)
    assert not re.search(r"[ \t]$", text, re.MULTILINE)


def test_a_name_of_a_source_stays_on_its_line_and_is_no_markup(funnel: Funnel) -> None:
    found = with_agent_named(funnel, HOSTILE)
    assert "\x1b" not in plain_text(sections(found))
    text = render_page(LINEAGE, found)
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_an_agent_version_is_called_by_its_name_and_its_id(funnel: Funnel) -> None:
    first = msgspec.structs.replace(funnel.agents[0], name="ab" * 32, title="lamp-finder-of-night", traces=10**6)
    found = msgspec.structs.replace(funnel, agents=(first, *funnel.agents[1:]))
    assert "lamp-finde… abababab" in plain_text(sections(found))
    text = render_page(LINEAGE, found)
    assert f"lamp-finder-of-night {'ab' * 32}" in text
    hostile = msgspec.structs.replace(first, title=HOSTILE)
    named = msgspec.structs.replace(funnel, agents=(hostile, *funnel.agents[1:]))
    assert "<script" not in render_page(LINEAGE, named) and "\x1b" not in plain_text(sections(named))


def test_the_page_needs_nothing_but_itself(page: str) -> None:
    class Tags(html.parser.HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[str, dict[str, str | None]]] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.seen.append((tag, dict(attrs)))

    tags = Tags()
    tags.feed(page)
    names = {tag for tag, _ in tags.seen}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "base"}
    assert not any({"src", "href", "srcset", "onload", "onclick"} & set(attributes) for _, attributes in tags.seen)
    assert "://" not in page and "@import" not in page and "url(" not in page


def test_every_plot_is_sound_and_says_what_it_is(page: str) -> None:
    found = svgs(page)
    assert len(found) == 2
    for svg in found:
        assert svg.get("role") == "img" and svg.get("aria-label")
        width = float((svg.get("viewBox") or "").split()[2])
        assert len(extents(svg)) >= 2
        assert all(0 <= left <= right <= width + 0.1 for _, left, right in extents(svg))


def test_the_length_plot_comes_first_and_marks_the_budget(page: str, funnel: Funnel) -> None:
    first = svgs(page)[0]
    assert "length in tokens" in (first.get("aria-label") or "")
    assert any("budget 14,336" in (text.text or "") for text in first.iter("text"))
    assert len(list(first.iter("title"))) == len(length_bins(funnel))


def test_a_funnel_that_kept_nothing_has_a_page_too() -> None:
    found = funnel_under(Rules(coefficient_e4_min=10_000, tokens_max=1), count=60)
    assert found.kept == 0
    assert f"0 of {found.traces} traces are in the corpus" in render_page(LINEAGE, found)
    assert plain_text(sections(found))


def test_without_matplotlib_the_page_says_so_and_has_all_its_numbers(
    page: str, funnel: Funnel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    bare = render_page(LINEAGE, funnel)
    assert svgs(bare) == [] and bare.count(NO_MATPLOTLIB) == len(svgs(page))
    assert all(f"{one.count:,}" in bare and f"<code>{one.code}</code>" in bare for one in funnel.codes)
