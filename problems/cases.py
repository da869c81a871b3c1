"""Cases: recommendations kept in files, scored one by one under the reference's keys.

One result per case and never an exception for what a case or a document contains: a malformed case, or a
malformed document that a case looks at, gives that case a failure and leaves the others alone. A case is
`{case_id, category, reward, voucher?, product_ids}`; documents are the index line format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from foundation.errors import ArenaError, Failure
from problems.formats import read_problem
from problems.outcome import UnscoredOutcome
from problems.product import Product, read_product
from problems.score import parse_recommendation, reference_fields, score
from problems.titles import TitleMatcher

_DIGITS = 12  # the golden vectors are rounded to this many


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The reference's keys and values for one case, or why there are none."""

    case_id: str
    fields: dict[str, float | bool] = {}
    failure: Failure | None = None

    def plain(self) -> dict[str, object]:
        """The JSON object of one output line."""
        if self.failure:
            return {"case_id": self.case_id, "unscored": msgspec.to_builtins(self.failure)}
        return {"case_id": self.case_id, **self.fields}


class Documents:
    """Raw product documents by id, typed when they are looked at."""

    def __init__(self, lines: Iterable[str | bytes]) -> None:
        """Raises ArenaError P4005 naming a line that is no index line at all."""
        self._raw: dict[str, object] = {}
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = msgspec.json.decode(line)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                raise ArenaError("P4005", f"line {number}: {error}") from error
            if not isinstance(row, Mapping) or not isinstance(row.get("id"), str):
                raise ArenaError("P4005", f"line {number}: a document is an object with an `id`")
            self._raw[row["id"]] = row.get("product")

    def product(self, product_id: str) -> Product | None:
        """The product, or None when there is no such document. Raises ArenaError P4005 when it is malformed."""
        if product_id not in self._raw:
            return None
        product = read_product(self._raw[product_id])
        if product.product_id != product_id:
            raise ArenaError("P4005", f"{product_id}: the product calls itself {product.product_id!r}")
        return product


def score_cases(lines: Iterable[str | bytes], documents: Documents, titles: TitleMatcher) -> Iterator[CaseResult]:
    """Score each line's case. Blank lines are skipped; a case without a `case_id` is named after its line."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            case = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            yield CaseResult(case_id=place, failure=Failure(code="P4001", detail=str(error)))
            continue
        yield _score_case(case, place, documents, titles)


def _score_case(case: object, place: str, documents: Documents, titles: TitleMatcher) -> CaseResult:
    named = case.get("case_id") if isinstance(case, Mapping) else None
    case_id = named if isinstance(named, str) and named else place
    try:
        problem = read_problem({"query": "", **case, "problem_id": case_id} if isinstance(case, Mapping) else case)
    except ArenaError as error:
        return CaseResult(case_id=case_id, failure=error.failure)
    ids, _ = parse_recommendation(case.get("product_ids") if isinstance(case, Mapping) else None)
    outcome = score(problem, ids, documents.product, titles)
    if isinstance(outcome, UnscoredOutcome):
        return CaseResult(case_id=case_id, failure=outcome.failure)
    fields = {
        name: value if isinstance(value, bool) else round(value, _DIGITS)
        for name, value in reference_fields(problem, outcome).items()
    }
    return CaseResult(case_id=case_id, fields=fields)
