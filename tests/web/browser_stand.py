"""A headless Chromium, and somebody who looks at pages with it: nothing but the node's own address may be asked for."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDE = 1280  # css pixels
# the screen of a machine without one, and none of the browser's own errands
OPTIONS = ("--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run")
SERIOUS = ("serious", "critical")


def chromium() -> str:
    """The program: where `make test` puts it, or on the path."""
    beside = Path(sys.prefix) / "bin" / "chromium"
    found = str(beside) if beside.exists() else shutil.which("chromium") or ""
    if not found and not os.environ.get("CI"):
        pytest.skip("no Chromium here: `make test` takes it from Debian's package chromium")
    assert found, "Chromium is missing"
    return found


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Chromium until the block ends."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """One window of the browser on a site. `elsewhere`: requests for anything that is not this site's; `said`: what
    scripts failed with."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.address = address
        self.elsewhere: list[str] = []
        self.said: list[str] = []
        self._context = browser.new_context(viewport={"width": WIDE, "height": 900})
        self._context.set_default_timeout(15_000)
        self._context.on("request", self._note)
        self.page = self._context.new_page()
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(f"dialog {dialog.message}"), dialog.dismiss()))

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.address + "/", "data:")):
            self.elsewhere.append(request.url)

    def go(self, path: str) -> int:
        """Open a page; its status."""
        answer = self.page.goto(self.address + path, wait_until="load")
        return answer.status if answer else 0

    def text(self, selector: str = "main") -> str:
        """What is read there."""
        return self.page.inner_text(selector)

    def follow(self, selector: str) -> str:
        """Click a link and wait for its page; its path."""
        with self.page.expect_navigation(wait_until="load"):
            self.page.click(selector)
        return self.page.url.removeprefix(self.address)

    def too_wide(self) -> list[int]:
        """Pixels by which the page is wider than a telephone's and a wide window; 0: it never scrolls sideways."""
        found = []
        for width in (390, WIDE):
            self.page.set_viewport_size({"width": width, "height": 900})
            found.append(self.page.evaluate("Math.max(0, document.documentElement.scrollWidth - innerWidth)"))
        return found

    def faults(self) -> list[str]:
        """Serious and critical findings of axe: rule and the elements."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page, options={"resultTypes": ["violations"]}).response["violations"]
        return [
            f"{one['id']}: {node['html'][:160]}" for one in found if one["impact"] in SERIOUS for node in one["nodes"]
        ]
