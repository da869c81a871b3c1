"""Every page in a real browser: wide and on a phone, light and dark, with and without script."""

from __future__ import annotations

from tests.web.browser_stand import Visitor
from tests.web.episode_stand import EMBARGOED, NAMES, PUBLISHED, RUNNING, VOID, agent_id, drawn_of
from tests.web.places import every_page

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
