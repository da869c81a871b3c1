"""Self-check: is a problem solvable, and is it not free?

Every problem that passes scores 1 for its own answer, in this catalogue and with this title matcher. If a crowd of
products is given, guessing is tried too: for every slot the best of `RANDOM_DRAWS` random products is recommended, and
the problem counts as free when chance alone satisfies every slot twice over. Oddities that do not matter become
warnings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import msgspec

from foundation.errors import Failure
from problems.axes import attribute_pairs_of, match, sku_pairs_of
from problems.model import Problem, Product, UnscoredOutcome
from problems.score import ProductOf, score, total_price
from problems.titles import TitleMatcher

RANDOM_DRAWS = 20  # random products a slot
CROWD_MIN = 200  # products: of fewer, random draws meet the answer itself, which is no luck
_LUCK_MAX = 1  # of them may satisfy it: one of 20 is luck, two are a problem that anything solves


class SelfCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one problem. `failure` is set when it must not be used."""

    problem_id: str
    oracle_reward_e4: int | None = None  # None: not even the answer could be scored
    random_reward_e4: int | None = None  # of the best of the random answers; None: no crowd was given
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_usable(self) -> bool:
        """True when the answer scores 1."""
        return self.failure is None


def check_solvable(problem: Problem, product_of: ProductOf, titles: TitleMatcher) -> SelfCheck:
    """Score the problem's own answer."""
    check = SelfCheck(problem_id=problem.problem_id)
    oracle = score(problem, [item.product_id for item in problem.rewards], product_of, titles)
    if isinstance(oracle, UnscoredOutcome):
        return msgspec.structs.replace(check, failure=oracle.failure)
    check = msgspec.structs.replace(check, oracle_reward_e4=oracle.reward_e4)
    if not oracle.is_success:
        broken = {"shop": "the answers stand in different shops", "voucher": "the answers miss the budget"}
        detail = broken.get(oracle.bucket, "the answer does not satisfy its own problem")
        return msgspec.structs.replace(check, failure=Failure(code="P4013", detail=detail))
    return msgspec.structs.replace(check, warnings=tuple(_warnings(problem, product_of, titles)))


def check_chance(
    check: SelfCheck,
    problem: Problem,
    crowd: Sequence[Product],
    titles: TitleMatcher,
    seed: int,
    draws: int = RANDOM_DRAWS,
) -> SelfCheck:
    """The check, with what the best of `draws` random products of the crowd a slot would earn.

    Deterministic by (seed, problem id, order of the crowd). `crowd` holds products of the catalogue, the more the
    better, and at least one.
    """
    rng = Random(f"chance\n{seed}\n{problem.problem_id}")
    best: list[Product] = []
    lucky: list[int] = []
    for item in problem.rewards:
        met: list[tuple[float, Product]] = []
        for product in [rng.choice(crowd) for _ in range(draws)]:
            axes = match(item, product, titles)
            is_answer = product.product_id == item.product_id  # which meets all rules
            met.append((1.0 if is_answer else axes.hits / axes.total, product))
        best.append(max(met, key=lambda pair: pair[0])[1])
        lucky.append(sum(share == 1.0 for share, _ in met))
    found = {product.product_id: product for product in best}
    outcome = score(problem, [product.product_id for product in best], found.get, titles)
    if isinstance(outcome, UnscoredOutcome):
        return msgspec.structs.replace(check, failure=outcome.failure)
    is_free = min(lucky) > _LUCK_MAX
    failure = Failure(code="P4013", detail="random products satisfy it") if is_free else check.failure
    return msgspec.structs.replace(check, random_reward_e4=outcome.reward_e4, failure=failure)


def _warnings(problem: Problem, product_of: ProductOf, titles: TitleMatcher) -> Iterable[str]:
    if not problem.query.strip():
        yield "query is empty"
    answers = [product for item in problem.rewards if (product := product_of(item.product_id))]
    for index, (item, answer) in enumerate(zip(problem.rewards, answers, strict=True)):
        axes = match(item, answer, titles)
        if axes.hits < axes.total:
            yield f"reward[{index}]: the answer itself meets {axes.hits} of {axes.total} rules"
        offered = {(key, value) for key, values in answer.attributes.items() for value in values}
        offered |= {pair for option in answer.sku_options.values() for pair in option.items()}
        folded = {_folded(pair) for pair in offered}
        for key, value in (*sku_pairs_of(item), *attribute_pairs_of(item)):
            # offered only in another case or with other blanks (docs/benchmark.md#edge-cases, 29)
            if (key, value) in offered or _folded((key, value)) not in folded:
                continue
            yield f"reward[{index}]: {key!r}: {value!r} is met in another spelling only"
    face_value = problem.voucher.face_value if problem.voucher else None
    if face_value is not None and face_value > total_price(answer.price for answer in answers):
        yield "voucher: the face value exceeds the total, so the price falls below zero"


def _folded(pair: tuple[str, str]) -> tuple[str, str]:
    key, value = (part.casefold().replace("_", " ").strip() for part in pair)
    return key, value
