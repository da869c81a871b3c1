"""`requests` and `urllib` as stand-ins: the paths of SN15's proxy through the host, and no other address.

An agent that speaks to the proxy by itself gets what `ProxyClient` gets, and its calls are recorded alike; every other
call raises ConnectionError, and `urlopen` always URLError. There is no network below it: nothing here opens anything.
"""

from __future__ import annotations

import json as _json
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlsplit

from sn15.proxy import ProxyClient

__path__: list[str] = []  # `requests` is a package
_REASON = "an agent has no network: only the paths of the proxy's address are answered (ProxyClient().proxy_url)"
_REFUSED = 502


class RequestException(OSError):  # noqa: N818 - the names are the package's
    """Base of all that is raised here."""

    def __init__(self, *args: object, request: object = None, response: object = None) -> None:
        self.request, self.response = request, response
        super().__init__(*args)


class ConnectionError(RequestException):
    """Raised for every address but the proxy's."""


class HTTPError(RequestException):
    """Raised by `raise_for_status`."""


class Timeout(RequestException, ValueError):  # noqa: N818
    """Never raised: the host keeps the time, and every answer of it is JSON from an address that can be read."""


ConnectTimeout = ReadTimeout = InvalidURL = JSONDecodeError = Timeout


class Response:
    """An answer of the host."""

    def __init__(self, url: str, status: int, body: object) -> None:
        self.headers: dict[str, str] = {}
        self.url, self.status_code, self.encoding = url, status, "utf-8"
        self.ok = status < 400
        self.reason = "OK" if self.ok else "refused by the host"
        self.text = _json.dumps(body)
        self.content = self.text.encode()

    def json(self, **_: object) -> Any:
        """The decoded body."""
        return _json.loads(self.text)

    def raise_for_status(self) -> None:
        """Raises HTTPError for a refusal."""
        if not self.ok:
            raise HTTPError(f"{self.status_code} {self.reason} for url: {self.url}", response=self)

    def close(self) -> None:
        """Nothing is open."""

    def __bool__(self) -> bool:
        return self.ok


def request(method: str, url: str, **options: Any) -> Response:
    """One request. Raises ConnectionError for an address that isn't the proxy's."""
    client = ProxyClient()
    given, own = urlsplit(str(url)), urlsplit(client.proxy_url)
    if (given.scheme, given.hostname, given.port or 80) != (own.scheme, own.hostname, own.port or 80):
        raise ConnectionError(f"{method} {url}: {_REASON}")
    if method.upper() == "GET":
        params = {**dict(parse_qsl(given.query)), **dict(options.get("params") or {})}
        body: object = client.get(given.path, params)
        error: Any = None if body is not None else {"status": _REFUSED, "body": "refused"}
    else:
        sent = options.get("json") or (_json.loads(options["data"]) if options.get("data") else None)
        body, error = client.post_verbose(given.path, sent)
    if error is None:
        return Response(str(url), 200, body)
    return Response(str(url), int(error["status"]), {"error": error["body"]})


def get(url: str, params: Any = None, **options: Any) -> Response:
    """GET."""
    return request("GET", url, params=params, **options)


def post(url: str, data: Any = None, json: Any = None, **options: Any) -> Response:
    """POST."""
    return request("POST", url, data=data, json=json, **options)


class HostSession:
    """Requests without a connection to keep; takes what a session and a transport adapter take."""

    def __init__(self, *_: object, **__: object) -> None:
        self.headers: dict[str, str] = {}
        self.request, self.get, self.post = request, get, post

    def mount(self, *_: object) -> None:
        """Nothing to mount."""

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> HostSession:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class URLError(RequestException):
    """Raised by every attempt of `urllib` to open an address."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class UnsentRequest:
    """What an agent would have sent by `urllib`."""

    def __init__(self, url: str, data: Any = None, headers: Any = None, *_: object, **__: object) -> None:
        self.full_url, self.data, self.headers = url, data, dict(headers or {})

    def add_header(self, name: str, value: str) -> None:
        """Keep a header."""
        self.headers[name] = value


def urlopen(url: Any, *_: object, **__: object) -> NoReturn:
    """Raises URLError."""
    raise URLError(f"{getattr(url, 'full_url', url)}: an agent has no network; use ProxyClient or arena_sdk")


Session, HTTPAdapter, Request = HostSession, HostSession, UnsentRequest
