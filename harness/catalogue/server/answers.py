"""What the search server answers: pure functions from method, path and query string to status and JSON bytes.

The reference's clients work unchanged (docs/benchmark.md#search): the same endpoints, parameters and quirks, the same
bytes for an answer (keys sorted, ASCII, one line feed at the end). Where the reference fails with status 500 the status
is kept and the body names the cause. Nothing here opens a file or a socket.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl

import msgspec

from foundation.errors import ArenaError
from harness.catalogue.analysis.analyzer import default_analyzer
from harness.catalogue.port import Catalogue, SearchRequest
from harness.catalogue.requests import QUERY_TERMS_MAX, read_page, read_query

QUERY_STRING_MAX = 32_768  # bytes, as sent; longer is 414
PRODUCT_IDS_MAX = 1_000  # in one request; more is 400
METHODS = ("GET", "HEAD", "OPTIONS")
PATHS = ("/", "/health", "/find_product", "/view_product_information", "/get_product_raw")
_FILTERS = ("shop_id", "price", "sort", "service")
_UNDECODED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as `surrogateescape` leaves them

Parameters = Mapping[str, str]
RawLookup = Callable[[str], Mapping[str, object] | None]


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Status and JSON body of one response."""

    status: int
    body: bytes


class ServedCatalogue(msgspec.Struct, frozen=True, kw_only=True):
    """What is served: a catalogue, and its whole documents by id."""

    catalogue: Catalogue
    raw: RawLookup


class RefusedRequestError(Exception):
    """A request that gets an error status; `str()` is the sentence for the client."""

    def __init__(self, status: int, sentence: str, parameter: str | None = None) -> None:
        super().__init__(sentence)
        self.status, self.parameter = status, parameter


def answer(served: ServedCatalogue, method: str, path: str, query_string: bytes) -> HttpAnswer:
    """The response to one request. Never raises for what a client sent.

    400, 404, 405 and 414 are the client's; 500 stands where the reference fails too, and for an index that cannot be
    read (the body then carries the failure's code).
    """
    try:
        if path not in PATHS:
            raise RefusedRequestError(404, f"there is no {path[:100]!r}; GET / names the endpoints")
        if method not in METHODS:
            raise RefusedRequestError(405, "only GET is answered here")
        if method == "OPTIONS":
            return HttpAnswer(status=200, body=b"")
        if len(query_string) > QUERY_STRING_MAX:
            raise RefusedRequestError(414, f"the query string is longer than {QUERY_STRING_MAX} bytes")
        return HttpAnswer(status=200, body=to_json(_found(served, path, read_parameters(query_string))))
    except RefusedRequestError as refusal:
        about = {"parameter": refusal.parameter} if refusal.parameter else {}
        return HttpAnswer(status=refusal.status, body=to_json({"error": str(refusal), **about}))
    except ArenaError as error:
        return HttpAnswer(status=500, body=to_json({"error": str(error), "code": error.failure.code}))


def read_parameters(query_string: bytes) -> dict[str, str]:
    """Parameters by name, the first of each, as the reference's framework reads them.

    Percent signs and plus signs are decoded once; bytes that are not UTF-8 stay percent-encoded. Raises
    RefusedRequestError 400 for a query string with unencoded bytes that are not UTF-8.
    """
    try:
        text = query_string.decode()
    except UnicodeDecodeError:
        raise RefusedRequestError(400, "the query string is not UTF-8; percent-encode it") from None
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True, errors="surrogateescape"):
        parameters.setdefault(_requote(name), _requote(value))
    return parameters


def to_json(value: object) -> bytes:
    """The bytes that Flask's `jsonify` makes of a value."""
    return (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode("ascii")


def _requote(text: str) -> str:
    return _UNDECODED.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", text)


def _found(served: ServedCatalogue, path: str, given: Parameters) -> object:
    """What stands at one of PATHS. Raises RefusedRequestError for parameters that cannot be answered."""
    match path:
        case "/":
            return {
                "/find_product": "q,page,shop_id,price,sort,service",
                "/view_product_information": "product_ids",
            }
        case "/health":
            return {"status": "healthy", "service": "search-server"}
        case "/find_product":
            request = SearchRequest(q=given.get("q"), page=given.get("page"), **{k: given.get(k) for k in _FILTERS})
            _refuse_what_the_reference_fails_on(request)
            return [
                {
                    "product_id": product.product_id,
                    "shop_id": product.shop_id,
                    "title": product.title,
                    "price": product.price,
                    "service": product.service,
                    "sold_count": product.sold_count,
                }
                for product in served.catalogue.search(request)
            ]
        case "/view_product_information":
            ids = given.get("product_ids")
            if ids is None:
                raise RefusedRequestError(500, "`product_ids` is missing", "product_ids")
            return [
                {
                    "product_id": product.product_id,
                    "short_description": product.short_description,
                    "description": product.description,
                    "sku_options": product.sku_options,
                    "attributes": product.attributes,
                }
                for product in map(served.catalogue.product, _split_ids(ids))
                if product is not None
            ]
        case _:
            documents = map(served.raw, _split_ids(given.get("product_ids", "")))
            return [document for document in documents if document is not None]


def _refuse_what_the_reference_fails_on(request: SearchRequest) -> None:
    """Raises RefusedRequestError 500 in the order in which the reference comes to it: the page, then the query."""
    page, text = request.page, read_query(request.q)
    if read_page(page) is None:
        if page and page.isdigit():
            try:
                int(page)
            except ValueError:
                raise RefusedRequestError(500, "`page` is made of digits that are no number", "page") from None
        return
    # a term needs a character, so a shorter text cannot hold too many
    if len(text) > QUERY_TERMS_MAX and len(set(default_analyzer().terms(text))) > QUERY_TERMS_MAX:
        raise RefusedRequestError(500, f"`q` has more than {QUERY_TERMS_MAX} different words", "q")


def _split_ids(text: str) -> list[str]:
    """Ids split at commas and not stripped, as the reference does. Raises RefusedRequestError 400 for too many."""
    ids = text.split(",")
    if len(ids) > PRODUCT_IDS_MAX:
        sentence = f"`product_ids` names {len(ids)} products; at most {PRODUCT_IDS_MAX} in one request"
        raise RefusedRequestError(400, sentence, "product_ids")
    return ids
