"""Pages that watch: news of the log without loading anew, and what is still to come by the minute."""

from __future__ import annotations

import threading

from arena.chain.keys import generate_signer
from tests.arena.tail_stand import Author, serving
from tests.web.browser_stand import Visitor, open_browser
from tests.web.episode_stand import DAY_MS, EMBARGOED, HOUR_MS, NOW_MS, RUNNING, drawn_of
from tests.web.site_stand import Site


def test_a_page_follows_the_log_by_itself(postgres):
    signer = generate_signer()
    site = Site(Author(postgres.dsn_for(signer.hotkey), signer))
    site.fill(agents=2)
    with (
        serving(site.author.dsn, now_ms=lambda: NOW_MS, requests_per_s=1e6) as server,
        open_browser() as browser,
        Visitor(browser, server.address) as visitor,
    ):
        visitor.go(f"/races/{RUNNING}")
        assert "8 of 80 episodes" in visitor.text()
        visitor.page.evaluate("window.isSamePage = true")
        with visitor.page.expect_response(lambda answer: answer.url.endswith(f"/races/{RUNNING}")):
            writing = threading.Thread(target=site.run, args=(4, site.racers(4)[:1], drawn_of(RUNNING)[4:6]))
            writing.start()  # not here: the browser's driver keeps an event loop in this thread
            writing.join()
        visitor.page.wait_for_selector("text=10 of 80 episodes")
        assert visitor.page.evaluate("window.isSamePage") is True
        assert visitor.said == [] and visitor.elsewhere == []


def test_what_is_to_come_is_counted_down(visitor):
    visitor.page.clock.install(time=(NOW_MS + HOUR_MS) / 1000 - 30)
    visitor.go(f"/races/{EMBARGOED}")
    assert f"in {DAY_MS // HOUR_MS - 1} h 0 min" in visitor.text(".coming time")
    visitor.page.clock.fast_forward(HOUR_MS)
    assert f"in {DAY_MS // HOUR_MS - 2} h 0 min" in visitor.text(".coming time")
    visitor.page.clock.fast_forward(DAY_MS)
    assert not visitor.text(".coming time").startswith("in ")
