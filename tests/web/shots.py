"""`make shots`: a picture of every page and state, wide and as on a phone, light and dark.

Usage: shots FOLDER [NAME...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import httpx2

from arena.chain.keys import generate_signer
from tests.arena.conftest import running_server
from tests.arena.tail_stand import Author, serving
from tests.web.browser_stand import PHONE, WIDE, Visitor, open_browser
from tests.web.episode_stand import NOW_MS, explain
from tests.web.places import every_page
from tests.web.site_stand import Site

LOOKS = {"wide-light": (WIDE, "light"), "wide-dark": (WIDE, "dark"), "phone-light": (PHONE, "light")}


def shoot(folder: Path, names: list[str]) -> int:
    """Write the pictures; how many."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_server() as postgres:
        signer = generate_signer()
        Site(Author(postgres.dsn_for(signer.hotkey), signer)).fill()
        with (
            serving(
                postgres.dsn_for(signer.hotkey), now_ms=lambda: NOW_MS, explain=explain, requests_per_s=1e6
            ) as server,
            httpx2.Client(base_url=server.address, timeout=30) as http,
            open_browser() as browser,
        ):
            pages = {name: path for name, path in every_page(http).items() if not names or name in names}
            for look, (width, scheme) in LOOKS.items():
                with Visitor(browser, server.address, width=width, scheme=scheme) as visitor:
                    for name, path in pages.items():
                        visitor.go(path)
                        visitor.page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
    return len(pages) * len(LOOKS)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    print(f"{shoot(where, sys.argv[2:])} pictures in {where}")
