"""What a tool call answers, between session and registry; what tools are given and how they refuse."""

from __future__ import annotations

import msgspec
import orjson

from foundation.codes import BAD_CALL
from foundation.errors import Failure
from harness.catalogue.port import Catalogue
from harness.limits import WorkMeter
from problems.model import Product


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one tool call. `result` is the JSON text the agent receives, also when the call was malformed."""

    result: str
    failure: Failure | None = None  # A1050, with the same sentence the agent sees
    ignored_parameters: tuple[str, ...] = ()
    found_ids: tuple[str, ...] = ()  # ids in the result, in rank order, for find_* tools only
    recommended_ids: tuple[str, ...] | None = None  # recommend_product only
    is_final: bool = False  # terminate only


_ECHO_MAX = 200  # characters of the agent's own text repeated in an error


class ToolContext(msgspec.Struct, frozen=True):
    """What a tool may look at: the catalogue, and never the problem or its answer."""

    catalogue: Catalogue
    work: WorkMeter = msgspec.field(default_factory=WorkMeter)  # of the episode


class RefusedCallError(Exception):
    """Raised by a tool for arguments of the right type that cannot be read; the text is for the agent."""


def decode_arguments(arguments: str) -> object:
    """The value of a call's arguments; none at all are no arguments. The one reading: what judges and attributes a call
    must take effect where the tools do. Raises orjson.JSONDecodeError."""
    return orjson.loads(arguments) if arguments.strip() else {}


def result_text(value: object) -> str:
    """JSON text of a result, as the agent receives it."""
    return orjson.dumps(value).decode()


def refuse(message: str, *, recommended_ids: tuple[str, ...] | None = None) -> ToolOutcome:
    """The answer to a malformed call: the same sentence for the agent and for the record."""
    sentence = message.encode("utf-8", "replace").decode()
    return ToolOutcome(
        result=result_text({"error": sentence, "code": BAD_CALL}),
        failure=Failure(code=BAD_CALL, detail=sentence),
        recommended_ids=recommended_ids,
    )


def quoted(text: str) -> str:
    """The agent's own text, shortened, for use in an error message."""
    return repr(text if len(text) <= _ECHO_MAX else text[:_ECHO_MAX] + "…")


def listed(product: Product) -> dict[str, object]:
    """A product as a search result shows it."""
    return {
        "product_id": product.product_id,
        "shop_id": product.shop_id,
        "title": product.title,
        "price": product.price,
        "service": product.service,
        "sold_count": product.sold_count,
    }


def split_list(text: str) -> list[str]:
    """Parts of a comma-separated list, stripped, blanks dropped."""
    return [part.strip() for part in text.split(",") if part.strip()]
