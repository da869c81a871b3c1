"""Cases: recommendations kept in files, scored one by one under the reference's keys.

One result per case and never an exception for what a case or a document contains: a malformed case, or a
malformed document that a case looks at, gives that case a failure and leaves the others alone. A case is
`{case_id, category, reward, voucher?, product_ids}`; documents are the index line format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from foundation.errors import ArenaError, Failure
from problems.formats import UNREADABLE, read_problem
from problems.model import Product, UnscoredOutcome, read_product
from problems.score import parse_recommendation, reference_fields, score
from problems.titles import TitleMatcher

_DIGITS = 12  # the golden vectors are rounded to this many


class Documents:
    """Raw product documents by id, typed when they are looked at."""

    def __init__(self, lines: Iterable[str | bytes]) -> None:
        """Raises ArenaError P4005 naming a line that is no index line at all."""
        self._raw: dict[str, object] = {}
        for number, line in enumerate(lines, start=1):
            try:
                row = msgspec.json.decode(line, type=dict[str, object]) if line.strip() else {"id": ""}
            except UNREADABLE as error:
                raise ArenaError("P4005", f"line {number}: {error}") from error
            if not isinstance(row.get("id"), str):
                raise ArenaError("P4005", f"line {number}: a document is an object with an `id`")
            self._raw[str(row["id"])] = row.get("product")

    def product(self, product_id: str) -> Product | None:
        """The product, or None when there is no such document. Raises ArenaError P4005 when it is malformed."""
        if product_id not in self._raw:
            return None
        product = read_product(self._raw[product_id])
        if product.product_id != product_id:
            raise ArenaError("P4005", f"{product_id}: the product calls itself {product.product_id!r}")
        return product


def score_cases(
    lines: Iterable[str | bytes], documents: Documents, titles: TitleMatcher
) -> Iterator[dict[str, object]]:
    """Each line's case with the reference's keys, or with `unscored`, its failure. Blank lines are skipped; a case
    without a `case_id` is named after its line."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        case_id = f"line {number}"
        try:
            case = msgspec.json.decode(line)
            if not isinstance(case, Mapping):
                read_problem(case)  # says what it is not
            named = case.get("case_id")
            case_id = named if isinstance(named, str) and named else case_id
            yield {"case_id": case_id, **_fields(case, case_id, documents, titles)}
        except UNREADABLE as error:
            yield _unscored(case_id, Failure(code="P4001", detail=str(error)))
        except ArenaError as error:
            yield _unscored(case_id, error.failure)


def _fields(
    case: Mapping[str, object], case_id: str, documents: Documents, titles: TitleMatcher
) -> dict[str, float | bool]:
    problem = read_problem({"query": "", **case, "problem_id": case_id})
    ids, _ = parse_recommendation(case.get("product_ids"))
    outcome = score(problem, ids, documents.product, titles)
    if isinstance(outcome, UnscoredOutcome):
        raise ArenaError(outcome.failure.code, outcome.failure.detail)
    fields = reference_fields(problem, outcome)
    return {name: value if isinstance(value, bool) else round(value, _DIGITS) for name, value in fields.items()}


def _unscored(case_id: str, failure: Failure) -> dict[str, object]:
    return {"case_id": case_id, "unscored": msgspec.to_builtins(failure)}
