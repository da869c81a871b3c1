"""Suites: problem files of three formats read into sound problems, and our own format written.

A problem that comes out of here passed `check_problem`; malformed input raises one ArenaError (P4xxx) that
names the line and the field. Formats, recognised row by row (docs/benchmark.md#problems):

* upstream test set: `{query, reward, voucher?}`; the bucket follows from `category`, else from the shape of `reward`;
* SN15 suite: the same with `category` Product/Shop/Voucher, `difficulty`, `title`, `reward_title_embeddings` (ignored);
* ours: one `Problem` a line, `{problem_id, bucket, query, rewards, voucher}`.

Rows stand one a line, in one JSON array, or in one object under `problems`. Web problems are refused (P4008).

Cases are recommendations kept in files, scored one by one under the reference's keys: `{case_id, category, reward,
voucher?, product_ids}`, with documents in the index line format. A malformed case, or a malformed document that a case
looks at, gives that case a failure and leaves the others alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from foundation.canonical import UNREADABLE_JSON, canonical_bytes
from foundation.codes import WEB_PROBLEM
from foundation.errors import ArenaError, Failure
from problems.model import BUCKETS, Problem, Product, UnscoredOutcome, check_problem, code_of_field, read_product
from problems.score import parse_recommendation, reference_fields, score
from problems.titles import TitleMatcher

UNREADABLE = (*UNREADABLE_JSON, UnicodeEncodeError)  # of a line given as a text
_WEB_FIELDS = ("Knowledge_Attribute", "knowledge_attribute")
_ITEM_FIELDS = ("product_id", "title", "sku_options", "attributes", "service")


def count_web(lines: Iterable[str | bytes | Mapping[str, object]]) -> int:
    """How many rows are web problems. Raises ArenaError P4001."""
    return sum(_is_web(row) for _, row in _rows(lines))


def read_problems(
    lines: Iterable[str | bytes | Mapping[str, object]], *, is_web_skipped: bool = False
) -> tuple[Problem, ...]:
    """All problems of a file's lines, or of rows already decoded; with `is_web_skipped` without its web problems.

    Raises ArenaError P4001 (not JSON), P4003, P4008, P4009 (malformed, or two problems with one id),
    naming the line and the field. Two rows without an id and with the same query are distinguished by their order.
    """
    problems: dict[str, Problem] = {}
    place_of: dict[str, str] = {}
    rows = _rows(lines)
    for place, row in rows:
        if is_web_skipped and _is_web(row):
            continue
        try:
            problem = read_problem(row)
        except ArenaError as error:
            code = error.failure.code
            share = f"; {sum(_is_web(one) for _, one in rows)} of {len(rows)} rows are" if code == WEB_PROBLEM else ""
            raise ArenaError(code, f"{place}: {error.failure.detail}{share}") from error
        name, copies = problem.problem_id, 1
        while problem.problem_id in problems:
            if _given_id(row) is not None:
                raise ArenaError("P4009", f"{place_of[name]} and {place}: {name!r}")
            copies += 1
            problem = msgspec.structs.replace(problem, problem_id=f"{name}-{copies}")
        problems[problem.problem_id] = problem
        place_of[problem.problem_id] = place
    return tuple(problems.values())


def read_problem(row: object) -> Problem:
    """One problem from a decoded row of any of the three formats.

    A row without an id is named after its bucket and query alone: a hash over the answer could be guessed from the
    public catalogue. Raises ArenaError P4003, P4008 or P4009 naming the field.
    """
    if not isinstance(row, Mapping):
        raise ArenaError("P4009", "a problem is a JSON object")
    fields = row if "rewards" in row else _from_public(row)
    try:
        problem = msgspec.convert(fields, Problem)
        problem_bytes(problem)
    except (TypeError, msgspec.ValidationError) as error:
        raise ArenaError(code_of_field(str(error)), str(error)) from error
    check_problem(problem)
    return problem


def write_problems(problems: Iterable[Problem]) -> Iterator[str]:
    """Our own format, one line per problem without its newline; `read_problems` reads it back equal."""
    for problem in problems:
        yield msgspec.json.encode(problem).decode()


def problem_bytes(problem: Problem) -> bytes:
    """Canonical bytes of a problem, to be committed to.

    Objects become sorted lists of pairs and floats their shortest text, since canonical JSON holds neither non-ASCII
    keys nor floats. Raises TypeError for a string that is not valid Unicode.
    """
    typed = msgspec.convert(msgspec.to_builtins(problem), Problem)  # an amount given as an integer becomes a float
    return canonical_bytes(_exact(msgspec.to_builtins(typed)))


def _exact(value: object) -> object:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return [[key, _exact(item)] for key, item in sorted(value.items())]
    if isinstance(value, (list, tuple)):
        return [_exact(item) for item in value]
    return value


def _rows(lines: Iterable[str | bytes | Mapping[str, object]]) -> list[tuple[str, object]]:
    """Each row with the words that name its place. Raises ArenaError P4001."""
    rows: list[tuple[str, object]] = []
    texts: list[bytes] = []
    wrong: ArenaError | None = None
    for number, line in enumerate(lines, start=1):
        if isinstance(line, Mapping):
            rows.append((f"line {number}", line))
        elif line.strip():
            texts.append(line.encode(errors="replace") if isinstance(line, str) else line)
            try:
                rows.append((f"line {number}", msgspec.json.decode(line)))
            except UNREADABLE as error:
                wrong = wrong or ArenaError("P4001", f"line {number}: {error}")
    if wrong is not None:  # one document over many lines; when it is none, the broken line is the better message
        try:
            rows = [("file", msgspec.json.decode(b"\n".join(texts)))]
        except UNREADABLE:
            raise wrong from None
    if len(rows) != 1:
        return rows
    place, document = rows[0]
    if isinstance(document, Mapping) and isinstance(document.get("problems"), list):
        document = document["problems"]
    if isinstance(document, list):
        return [(f"problem {number}", row) for number, row in enumerate(document, start=1)]
    return [(place, document)]


def _from_public(row: Mapping[str, object]) -> dict[str, object]:
    """The fields of a `Problem` from an upstream or SN15 row."""
    bucket = _bucket_of(row)
    reward = row.get("reward")
    if not isinstance(reward, dict if bucket == "product" else list):
        raise ArenaError("P4003", f"reward of a {bucket} problem is {'an object' if bucket == 'product' else 'a list'}")
    items = [reward] if isinstance(reward, dict) else reward
    query = row.get("query")
    if not isinstance(query, str):
        raise ArenaError("P4009", "query is not a text")
    problem_id = _given_id(row)
    if problem_id is None:
        digest = hashlib.sha256(f"{bucket}\n{query}".encode(errors="surrogatepass")).hexdigest()
        problem_id = f"p_{digest[:16]}"
    return {
        "problem_id": problem_id,
        "bucket": bucket,
        "query": query,
        "rewards": [_item(item, f"reward[{index}]") for index, item in enumerate(items)],
        "voucher": row.get("voucher"),
    }


def _bucket_of(row: Mapping[str, object]) -> str:
    """The bucket, from `category` in any case, else from the shape. Raises P4003 or P4008."""
    if _is_web(row):
        raise ArenaError("P4008", "category is web")
    category = row.get("category")
    if category is None:
        shape = "shop" if isinstance(row.get("reward"), list) else "product"
        category = "voucher" if row.get("voucher") is not None else shape
    bucket = category.lower() if isinstance(category, str) else ""
    if bucket not in BUCKETS:
        raise ArenaError("P4003", f"category is {category!r}")
    return bucket


def _is_web(row: object) -> bool:
    """Whether a public row is one of those whose answer is a whole document."""
    return isinstance(row, Mapping) and (
        str(row.get("category")).lower() == "web" or any(name in row for name in _WEB_FIELDS)
    )


def _item(raw: object, field: str) -> dict[str, object]:
    """The fields of a `RewardItem`; prices turn from `{mode: [low, high]}` into rules."""
    if not isinstance(raw, Mapping):
        raise ArenaError("P4003", f"{field} is not an object")
    item = {name: raw[name] for name in _ITEM_FIELDS if name in raw}
    if "price" not in raw:
        return item
    stated = raw["price"]
    if not isinstance(stated, list) or not all(isinstance(rule, Mapping) for rule in stated):
        raise ArenaError("P4003", f"{field}.price is not a list of objects")
    rules: list[dict[str, object]] = []
    for mode, bounds in (pair for rule in stated for pair in rule.items()):
        if not isinstance(bounds, list) or len(bounds) != 2:
            raise ArenaError("P4003", f"{field}.price: {mode!r} needs two bounds")
        rules.append({"mode": mode, "low": bounds[0], "high": bounds[1]})
    item["price"] = rules
    return item


def _given_id(row: object) -> object | None:
    """The id a row names, under either public spelling; checked for its type by the caller's conversion."""
    return row.get("problem_id", row.get("id")) if isinstance(row, Mapping) else None


_DIGITS = 12  # the golden vectors are rounded to this many


class Documents:
    """Raw product documents by id, typed when they are looked at."""

    def __init__(self, lines: Iterable[str | bytes]) -> None:
        """Raises ArenaError P4005 naming a malformed index line."""
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
