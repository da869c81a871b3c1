"""`urllib.error` as a stand-in: what agents catch around `urllib.request`, without the files of the real ones."""

from __future__ import annotations


class URLError(OSError):
    """Raised by every attempt to open an address."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class UrlStatusError(URLError):
    """Never raised: no address answers."""


HTTPError = UrlStatusError
