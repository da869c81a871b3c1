"""Every figure of every page says what it was computed from: by a link, or by a source that is named beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

import msgspec
import numpy as np
import pytest

from arena.race.settlement.scores import resample
from tests.web.episode_stand import PUBLISHED, agent_id
from tests.web.places import every_page

# a number by itself: no part of a name, a hash or a word
FIGURE = re.compile(r"(?<![\w.#-])\$?\d[\d,]*(\.\d+)?(?![\w-])")
# what a reader takes as one statement: a link in it leads on from its figures
STATEMENTS = ("p", "li", "dd", "td", "caption", "figcaption", "summary")
# what statements stand in: it says beside its name what all of them are from
WHOLES = ("table", "figure", "dl", "ol", "ul", "section")
# no figures: names of columns and pages, what can be chosen, commands, and foreign words
NO_FIGURES = ("h1", "h2", "dt", "thead", "form", "pre", "code", "time")
FOREIGN = ("text", "rows", "finding", "legend", "number")
VOID = ("meta", "link", "input", "br", "line", "rect")


class Statement:
    """A part of a page: the figures in it, and whether it says where they come from."""

    def __init__(self, tag: str, around: Statement | None) -> None:
        self.tag, self.around = tag, around
        self.figures: list[str] = []
        self.is_sourced = False

    @property
    def has_source(self) -> bool:
        return self.is_sourced or (self.around is not None and self.around.has_source)


class Reader(HTMLParser):
    """The statements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.statements = [Statement("main", None)]
        self._open: list[tuple[str, bool, bool]] = []  # element, whether it begins a statement, whether it is skipped
        self._within = self.statements[0]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        found = dict(attrs)
        classes = (found.get("class") or "").split()
        begins = tag in STATEMENTS or tag in WHOLES
        if begins:
            self._within = Statement(tag, self._within)
            self.statements.append(self._within)
        if "from" in classes:
            told: Statement | None = self._within
            while told is not None and told.tag not in WHOLES:
                told = told.around
            (told or self._within).is_sourced = True
        elif tag == "a" and self._within.tag in STATEMENTS:
            self._within.is_sourced = True
        is_skipped = tag in NO_FIGURES or bool(set(classes) & set(FOREIGN))
        self._open.append((tag, begins, is_skipped))

    def handle_endtag(self, tag: str) -> None:
        while self._open and tag not in VOID:
            closed, begins, _ = self._open.pop()
            if begins and self._within.around is not None:
                self._within = self._within.around
            if closed == tag:
                return

    def handle_data(self, data: str) -> None:
        if not any(skipped or tag == "a" for tag, _, skipped in self._open):
            self._within.figures += [one.group() for one in FIGURE.finditer(data)]


def unsourced(text: str) -> Iterator[str]:
    """The figures of a page that nothing leads on from."""
    main = text[text.index("<main") : text.index("</main>")]
    for statement in Reader(main).statements:
        if not statement.has_source:
            yield from (f"{statement.tag}: {figure}" for figure in statement.figures)


def test_every_figure_of_every_page_has_a_source(served):
    found = {}
    for name, path in every_page(served.http).items():
        answer = served.http.get(path, headers={"accept": "text/html"})
        if left := list(unsourced(answer.text)):
            found[name] = left
    assert found == {}


@pytest.mark.parametrize(
    ("page", "left"),
    [
        ("<main><p>7 problems</p></main>", ["p: 7"]),
        ("<main><p>7 problems <a href='/races'>of these</a></p></main>", []),
        ("<main><table><caption><small class=from>from it</small></caption><tr><td>0.5</td></tr></table></main>", []),
        (
            "<main><table><tr><td>0.5</td><td>$0.25</td></tr></table><p><a href=/x>x</a></p></main>",
            ["td: 0.5", "td: $0.25"],
        ),
        ("<main><table><tr><th><a href=/x>x</a></th><td>5</td></tr></table></main>", ["td: 5"]),
        ("<main><p>race-000001 by 5Miner of v2.1x</p><dl><dt>steps</dt><dd>12</dd></dl></main>", ["dd: 12"]),
        ("<main>12 of them</main>", ["main: 12"]),
    ],
)
def test_a_figure_without_a_source_is_found(page, left):
    assert list(unsourced(page)) == left


def test_the_first_leads_the_second_by_what_both_had_on_the_same_problems(served):
    """The interval worked out anew from what the page links to."""
    settlement = served.http.get(f"/v1/races/{PUBLISHED[0]}/settlement").json()
    page = served.http.get(f"/races/{PUBLISHED[0]}", headers={"accept": "text/html"}).text
    said = page[page.index('class="gap"') :]
    said = said[: said.index("</p>")]
    (address,) = re.findall(r'href="(/v1/races/[^"]*problems[^"]*)"', said)
    rows = {row["problem_id"]: row for row in served.http.get(address.replace("&amp;", "&")).json()["items"]}
    counted = [name for name in settlement["drawn"] if name not in settlement["void"]]
    best = [row["agent_version_id"] for row in sorted(settlement["standings"], key=lambda row: row["rank"])[:2]]
    weight = msgspec.json.decode(settlement["inputs"]["policy"])["race"]["lambda_e4"] / 10_000
    resampled = []
    for agent in best:
        scores, agentic = [], []
        for name in counted:
            (result,) = (one for one in rows[name]["results"] if one["agent_version_id"] == agent)
            scores.append(result["coefficient_e4"] if result["is_success"] else 0)
            agentic.append(result["is_agentic"])
        picks = resample(settlement["seed"], len(counted))
        share = np.array(agentic)[picks].mean(axis=1)
        resampled.append(np.array(scores)[picks].mean(axis=1) * (1 - weight + weight * share))
    low, high = np.percentile(resampled[0] - resampled[1], [2.5, 97.5])
    told = [float(one) for one in re.findall(r"-?\d\.\d{4}", said.partition("</svg>")[2])]
    assert told[:2] == pytest.approx([low / 10_000, high / 10_000], abs=0.004)
    assert agent_id(0) in best
