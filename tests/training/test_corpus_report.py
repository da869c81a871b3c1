"""The funnel report: one funnel, three forms that agree, and a page that needs nothing but itself."""

from __future__ import annotations

import html.parser
import re

import msgspec
import pytest

from tests.training.labelled import make_labelled, select, stand_guard
from training.corpus.appraisal import Task
from training.corpus.funnel import Funnel
from training.corpus.model import Lineage, Rules
from training.corpus.report import (
    plain_text,
    render_page,
    sections,
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


def with_agent_named(funnel: Funnel, name: str) -> Funnel:
    first = msgspec.structs.replace(funnel.agents[0], name=name, traces=10**6)
    return msgspec.structs.replace(funnel, agents=(first, *funnel.agents[1:]))


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
