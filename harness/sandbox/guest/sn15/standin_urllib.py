"""`urllib.request` as a stand-in: requests can be made up, and none is sent. An agent has no network."""

from __future__ import annotations

from typing import Any, NoReturn
from urllib.error import URLError


class UnsentRequest:
    """What an agent would have sent."""

    def __init__(self, url: str, data: Any = None, headers: Any = None, *_: object, **__: object) -> None:
        self.full_url, self.data, self.headers = url, data, dict(headers or {})

    def add_header(self, name: str, value: str) -> None:
        """Keep a header."""
        self.headers[name] = value


Request = UnsentRequest


def urlopen(url: Any, *_: object, **__: object) -> NoReturn:
    """Raises URLError."""
    raise URLError(f"{getattr(url, 'full_url', url)}: an agent has no network; use ProxyClient or arena_sdk")
