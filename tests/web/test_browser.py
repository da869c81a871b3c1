"""Every page in a real browser: wide and on a phone, light and dark, with and without script."""

from __future__ import annotations

import re

import pytest

from tests.web.browser_stand import PHONE, Visitor
from tests.web.episode_stand import EMBARGOED, NAMES, PUBLISHED, RUNNING, VOID, agent_id, drawn_of
from tests.web.places import ASKED, every_page, traces_of

# pages with parts of their own; `make prove` looks at all of them in every way
LOOKED_AT = (
    "leaderboard",
    "race",
    "race-running",
    "problem",
    "agent",
    "trace",
    "compare",
    "firehose",
    "verify",
    "error",
)


def look(browser, served, *, names=None, is_script_run=True, **options) -> dict[str, list[str]]:
    """What is wrong with each page for somebody with this window: findings of axe, sideways scrolling, text that is cut
    off, requests for something elsewhere, script errors. Without scripts axe, which is one, can't look."""
    wrong: dict[str, list[str]] = {}
    with Visitor(browser, served.address, java_script_enabled=is_script_run, **options) as visitor:
        for name, path in every_page(served.http).items():
            if names is None or name in names:
                visitor.go(path)
                found = visitor.faults() if is_script_run else []
                found += [f"{wide} px too wide" for wide in (visitor.too_wide(),) if wide]
                found += visitor.cut_off() + visitor.elsewhere + visitor.said
                if found:
                    wrong[name] = found
    return wrong


def test_no_page_is_a_barrier_or_asks_for_anything_elsewhere(browser, served):
    assert look(browser, served) == {}


def test_pages_fit_a_phone_in_the_dark(browser, served):
    assert look(browser, served, names=LOOKED_AT, width=PHONE, scheme="dark") == {}


def test_pages_fit_the_narrowest_phone(browser, served):
    assert look(browser, served, names=LOOKED_AT, width=320) == {}


def test_text_that_is_cut_off_is_found(visitor):
    visitor.go("/agents")
    assert visitor.cut_off() == []
    visitor.page.add_style_tag(content="h1 { width: 20px; overflow: hidden; white-space: nowrap; }")
    assert [one.partition(": ")[0] for one in visitor.cut_off()] == ["hidden"]
    visitor.page.add_style_tag(content="h1 { width: auto; overflow: visible; margin-left: -200px; }")
    assert [one.partition(": ")[0] for one in visitor.cut_off()] == ["outside"]


@pytest.mark.prove
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 360, PHONE, 500, 768, 1280, 1920])
@pytest.mark.parametrize("is_script_run", [True, False])
def test_every_page_at_every_width_in_both_schemes(browser, served, width, scheme, is_script_run):
    assert look(browser, served, width=width, scheme=scheme, is_script_run=is_script_run) == {}


def test_the_dark_scheme_is_dark(browser, served):
    shades = {}
    for scheme in ("light", "dark"):
        with Visitor(browser, served.address, scheme=scheme) as visitor:
            visitor.go("/")
            colour = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor")
            shades[scheme] = sum(map(int, re.findall(r"\d+", colour)[:3]))
    assert shades["dark"] < 150 < 600 < shades["light"]


def test_from_the_leaderboard_by_links_alone_to_a_trace_and_its_record(visitor):
    assert visitor.go("/") == 200
    assert visitor.follow("nav a:text-is('Races')") == "/races"
    assert visitor.follow(f"tbody a:text-is('{PUBLISHED[1]}')") == f"/races/{PUBLISHED[1]}"
    assert visitor.text("[aria-current=step]").startswith("published")
    place = visitor.follow("a.cell.solved")
    assert place.startswith("/traces/")
    visitor.follow(".crumbs a[href^='/agents/']")
    assert visitor.text("h1") in NAMES
    visitor.page.go_back()
    visitor.follow(f".crumbs a[href^='/races/{PUBLISHED[1]}/problems/']")
    assert "Who solved it" in visitor.text()
    assert "with=" in visitor.follow("td a:text-is('beside the first')")
    assert "They part at" in visitor.text() or "they do the same" in visitor.text()


def test_a_quote_leads_to_its_words_and_back(visitor, served):
    for place in traces_of(served.http, ASKED):
        visitor.go(f"/traces/{place}")
        if visitor.page.locator("a[href='#quote-1']").count():
            break
    quoted = visitor.text("#cite-1 + dd").partition("”")[0].strip("“ ")
    visitor.page.click("a[href='#quote-1']")
    assert visitor.page.evaluate("location.hash") == "#quote-1"
    assert visitor.page.locator("#quote-1").is_visible()
    assert quoted in visitor.page.locator("mark", has=visitor.page.locator("#quote-1")).inner_text()
    visitor.page.click("#quote-1")
    assert visitor.page.evaluate("location.hash") == "#cite-1"
    visitor.page.keyboard.press("j")
    assert visitor.page.evaluate("location.hash").startswith("#span-")


def test_a_traces_timeline_leads_to_each_step(visitor, served):
    visitor.go(f"/traces/{traces_of(served.http, ASKED)[1]}")
    links = visitor.page.locator(".timeline a")
    assert links.count() == visitor.page.locator("dt[id^=span-]").count() > 3
    for number in range(links.count()):
        links.nth(number).click()
        place = visitor.page.evaluate("location.hash")
        assert links.nth(number).inner_text().split()[0] == place.removeprefix("#span-")
        assert visitor.page.locator(f"{place}:target").count() == 1
    visitor.page.keyboard.press("k")
    assert visitor.page.evaluate("location.hash") != place


def test_filters_take_away_and_say_so_when_nothing_is_left(visitor):
    visitor.go("/agents")
    everybody = visitor.page.locator("tbody tr").count()
    visitor.page.fill("input[name=name]", "Lamp")
    assert visitor.follow("button") == "/agents?name=Lamp&state="
    assert visitor.page.locator("tbody tr").count() == 1 < everybody == len(NAMES)
    assert visitor.page.input_value("input[name=name]") == "Lamp"
    visitor.page.select_option("select[name=state]", "rejected")
    visitor.follow("button")
    assert "No agent is like that" in visitor.text(".empty")
    visitor.go("/races")
    visitor.page.select_option("select[name=stage]", "cancelled")
    visitor.follow("button")
    assert visitor.text("tbody th") == VOID and visitor.page.locator("tbody tr").count() == 1
    visitor.go(f"/races/{PUBLISHED[1]}")
    visitor.page.select_option("select[name=show]", "void")
    visitor.follow("button")
    assert "void" in visitor.text(".matrix tbody th") and visitor.page.locator(".matrix tbody tr").count() == 1
    visitor.go("/firehose")
    whole = visitor.text(".bars >> nth=0")
    visitor.page.select_option("select[name=agent]", agent_id(0))
    visitor.page.select_option("select[name=wrote]", "model")
    visitor.follow("button")
    assert visitor.text(".bars >> nth=0") != whole and visitor.page.input_value("select[name=agent]") == agent_id(0)


def test_what_is_sealed_void_or_running_says_until_when_and_why(visitor, served):
    says = {
        f"/races/{RUNNING}": "Sealed until the race is settled and released",
        f"/races/{VOID}": "Cancelled. The beacon did not come.",
        f"/races/{EMBARGOED}/problems/{drawn_of(EMBARGOED)[0]}": "which open after the embargo",
        f"/agents/{agent_id(7)}": "The source of an agent that was not promoted stays closed.",
        f"/races/{RUNNING}/problems/x": "V2089",
    }
    for path, said in says.items():
        visitor.go(path)
        assert said in " ".join(visitor.text().split()), path


def test_an_empty_node_says_what_will_stand_here(browser, empty):
    says = {
        "/": "Standings stand here after the first settlement",
        "/races": "No race was opened here yet",
        "/agents": "Nobody has submitted an agent yet",
        "/firehose": "Nothing is recorded yet",
        "/validators": "No log is served here yet",
    }
    with Visitor(browser, str(empty.base_url).rstrip("/")) as visitor:
        for path, said in says.items():
            assert visitor.go(path) == 200
            assert said in visitor.text(), path
            assert visitor.faults() == [] and visitor.elsewhere == [], path


def test_without_a_script_everything_but_the_check_of_a_record_is_there(browser, served):
    with (
        Visitor(browser, served.address, java_script_enabled=False) as bare,
        Visitor(browser, served.address) as whole,
    ):
        for name, path in every_page(served.http).items():
            if name not in LOOKED_AT:
                continue
            bare.go(path)
            whole.go(path)
            missing = bare.page.locator("noscript").count()
            assert (name == "verify") == bool(missing), name
            if not missing:
                assert bare.text().split() == whole.text().split(), name
        bare.go("/agents")
        bare.page.fill("input[name=name]", "lamp")
        assert bare.follow("button").startswith("/agents?name=lamp")


def test_a_keyboard_reaches_the_content_and_sees_where_it_is(visitor):
    visitor.go("/")
    visitor.page.keyboard.press("Tab")
    assert visitor.page.evaluate("document.activeElement.className") == "skip"
    visitor.page.keyboard.press("Enter")
    visitor.page.keyboard.press("Tab")
    inside = "document.getElementById('main').contains(document.activeElement)"
    assert visitor.page.evaluate(inside)
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert visitor.page.evaluate(outline) == "solid"


def test_a_wrong_address_is_a_page_for_people_and_json_for_programs(visitor, served):
    for path in ("/no/such/page", "/races?stage=nonsense", "/agents?colour=red", "/races/race-none", "/agents/none"):
        status = visitor.go(path)
        assert status in (400, 404) and visitor.page.locator("nav").count() == 1, path
        assert re.search(r"V208[12]", visitor.text(".note")), path
        answer = served.http.get(path, headers={"accept": "application/json"})
        if path.startswith("/no"):
            assert answer.json()["code"] == "V2082"
    assert served.http.get("/v1/nothing", headers={"accept": "text/html"}).json()["code"] == "V2082"
