"""Synthesis: new problems over a catalogue, after the rules of the public generator.

Deterministic in (products, seed, counts, exclude), whatever order the products come in; every problem is
solvable by construction, since each constraint is read off its answer; at most `ACCEPTED_MAX` products satisfy an
item, and at most as many fit the words of the query and its constraints; every constraint can be read back from the
query (`problems.wording`); a product class answers once in a maker's life, so no two of its problems share a
leak cluster. Difficulty falls as it does in the public set. Public ids and all else are derived from the seed: for
a sealed batch the seed must be 128 random bits or more, or the answers can be recomputed. The problems of one `make`
follow from one stream, so they are to be released together; a bank whose problems come out at different times takes
`make_apart`. It will not write natural prose: see `problems.constraints`.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Literal

import msgspec

from foundation.errors import ArenaError
from problems.axes import ask, match
from problems.constraints import draw_item, draw_voucher, further_items, say_problem
from problems.model import BUCKETS, Bucket, Problem, Product, RewardItem
from problems.score import total_price
from problems.title_index import TitleIndex
from problems.titles import LexicalTitles, TitleMatcher
from problems.wording import reads_back, said_names

ITEMS_MAX = 4  # that one problem asks for
_TRIES_PER_PROBLEM = 400
_PRICE_MIN_PHP = 2.0
_VOUCHER_TOTAL_MIN_PHP = 100.0
_TITLE_WORDS_MIN = 4
_NAME_WORDS = (2, 6)  # of a title, fewest and most
_NAMESAKES_MAX = 3  # titles with all words of a name, where so few words reach it
_ITEMS: Mapping[Bucket, tuple[int, int]] = {"product": (1, 1), "shop": (2, 4), "voucher": (1, 4)}  # as the public set
_ONE_SHOP_CHANCE = 0.5  # of a voucher
_NAME_WORD = re.compile(r"[a-z0-9]{2,}")

# Words that lead to no product, and words of services, which a name would make sound like a constraint.
_FILLER_TEXT = """
and by for from in is it of on or the this to with you free shipping delivery cash cod lazmall lazflash
flash sale deal official store shop mall seller budget voucher php peso pesos no not non without except
"""
_FILLERS = frozenset(_FILLER_TEXT.split())


def synthesize(
    products: Sequence[Product] | TitleIndex,
    *,
    seed: int,
    counts: Mapping[Bucket, int],
    exclude: Collection[str] = (),
) -> tuple[Problem, ...]:
    """`counts[bucket]` problems of each bucket, in bucket order.

    `exclude` holds the product ids that answer in other sets: neither they nor near-identical listings of them answer
    here. Raises ArenaError P4011 when the catalogue yields too few; ValueError for a negative count.
    """
    index = products if isinstance(products, TitleIndex) else TitleIndex(products)
    return ProblemMaker(index, exclude).make(seed=seed, counts=counts)


class TooFewProblemsError(ArenaError):
    """P4011: the catalogue yields no such problem in a bounded number of draws."""


class _SynthesisOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What one problem is to be. `level` None takes whatever comes out; `is_one_shop` None follows the bucket."""

    bucket: Bucket
    items: tuple[int, int]  # fewest and most, before a shop asks for two
    level: Level | None = None
    is_one_shop: bool | None = None


class ProblemMaker:
    """Makes set after set over one index, and remembers which product classes have answered.

    What it makes depends on everything it made before, but for `make_like`. A set costs the same however many came
    before it: nothing is rebuilt, and products found taken are dropped from what is drawn from.
    """

    def __init__(self, index: TitleIndex, exclude: Iterable[str] = ()) -> None:
        """`exclude` as in `ProblemMaker.exclude`, from the first draw on."""
        self._index = index
        self._classes = index.class_numbers
        self._taken: set[int] = set()
        self.exclude(exclude)
        self._free = [
            place
            for place, product in enumerate(index.products)
            if int(self._classes[place]) not in self._taken
            and len(_telling_words(product.title)) >= _TITLE_WORDS_MIN  # to be told apart
            and product.price >= _PRICE_MIN_PHP  # worth a bound
        ]
        by_shop: dict[str, list[int]] = defaultdict(list)
        for place in self._free:
            by_shop[index.products[place].shop_id].append(place)
        self._shops = [places for places in by_shop.values() if len(places) >= 2]

    def exclude(self, product_ids: Iterable[str]) -> None:
        """Keep these products, and all near-identical listings of them, from answering. Unknown ids are ignored."""
        places = map(self._index.place, product_ids)
        self._taken.update(int(self._classes[place]) for place in places if place is not None)

    def make(self, *, seed: int, counts: Mapping[Bucket, int]) -> tuple[Problem, ...]:
        """The next set: `counts[bucket]` problems of each bucket. Raises like `synthesize`."""
        if any(count < 0 for count in counts.values()):
            raise ValueError("counts must not be negative")
        rng = Random(seed)
        problems: list[Problem] = []
        for bucket in BUCKETS:
            order = _SynthesisOrder(bucket=bucket, items=_ITEMS[bucket])
            for _ in range(counts.get(bucket, 0)):
                digest = hashlib.sha256(f"problem id\n{seed}\n{len(problems)}".encode()).hexdigest()
                problem, answers = self._make_one(order, f"p_{digest[:16]}", rng)
                self._taken.update(int(self._classes[place]) for place in answers)
                problems.append(problem)
        return tuple(problems)

    def make_like(self, model: Problem, *, seed: int, problem_id: str) -> Problem:
        """A problem of other products in the shape of `model`: its bucket, number of items, scope and difficulty.

        It takes nothing out of what is drawn from. With a maker that makes nothing else it depends on catalogue,
        `exclude`, `model` and the arguments alone. The difficulty is the model's where the catalogue yields that in a
        bounded number of draws, else whatever comes out. Raises ArenaError P4011 when there is no such problem.
        """
        items = min(len(model.rewards), ITEMS_MAX)
        is_one_shop = model.bucket == "shop" or (model.voucher is not None and model.voucher.voucher_type == "shop")
        level = difficulty_of(model, self._index)
        order = _SynthesisOrder(bucket=model.bucket, items=(items, items), level=level, is_one_shop=is_one_shop)
        try:
            return self._make_one(order, problem_id, Random(seed))[0]
        except TooFewProblemsError:
            return self._make_one(msgspec.structs.replace(order, level=None), problem_id, Random(seed))[0]

    def make_apart(self, *, seed: int, counts: Mapping[Bucket, int]) -> Iterator[Problem]:
        """Such a set problem by problem, each from a seed of its own: a hash of `seed` and its number. Whoever knows
        some of them can compute nothing of the others, as long as `seed` is unknown. Raises like `make`."""
        number = itertools.count()
        for bucket in BUCKETS:
            for _ in range(counts.get(bucket, 0)):
                own = int.from_bytes(hashlib.sha256(f"problem seed\n{seed}\n{next(number)}".encode()).digest())
                yield from self.make(seed=own, counts={bucket: 1})

    def _make_one(self, order: _SynthesisOrder, problem_id: str, rng: Random) -> tuple[Problem, list[int]]:
        """One problem and the places of its answers, or ArenaError P4011 after a bounded number of draws."""
        bucket, level = order.bucket, order.level
        for _ in range(_TRIES_PER_PROBLEM):
            is_one_shop = order.is_one_shop
            if is_one_shop is None:
                is_one_shop = bucket == "shop" or (bucket == "voucher" and rng.random() < _ONE_SHOP_CHANCE)
            answers = self._draw(order, is_one_shop, rng)
            problem = self._problem(order, answers, is_one_shop, problem_id, rng) if answers else None
            if problem is not None:
                return problem, answers
        kind = bucket if level is None else f"{level} {bucket}"
        raise TooFewProblemsError("P4011", f"no {kind} problem in {_TRIES_PER_PROBLEM} draws")

    def _problem(
        self, order: _SynthesisOrder, places: Sequence[int], is_one_shop: bool, problem_id: str, rng: Random
    ) -> Problem | None:
        """The problem of these answers, or None when it would be ambiguous, unreadable, or of another level."""
        bucket, level = order.bucket, order.level
        answers = [self._index.products[place] for place in places]
        voucher = None
        if bucket == "voucher":
            total_php = total_price(answer.price for answer in answers)
            if total_php < _VOUCHER_TOTAL_MIN_PHP:
                return None
            voucher = draw_voucher(total_php, is_one_shop, rng)
        is_priced = bucket != "voucher"
        items, names = [], []
        for answer in answers:
            words = self._name(answer, rng)
            drawn = draw_item(answer, rng, is_priced=is_priced)
            asking = itertools.chain((drawn,), further_items(drawn, answer, rng, is_priced=is_priced))
            item = next((one for one in asking if self._is_clear(words, one)), None)
            if item is None:  # the answer offers too little to be recognised
                return None
            items.append(item)
            names.append(" ".join(words))
        problem = Problem(
            problem_id=problem_id,
            bucket=bucket,
            query=say_problem(bucket, names, items, voucher, rng),
            rewards=tuple(items),
            voucher=voucher,
        )
        if not reads_back(problem) or (level is not None and difficulty_of(problem, self._index) != level):
            return None
        return problem

    def _is_clear(self, words: Sequence[str], item: RewardItem) -> bool:
        """Whether at most `ACCEPTED_MAX` products satisfy the item, and as many fit the words and its constraints."""
        fitting = count_fitting(item, words, self._index)
        return fitting <= ACCEPTED_MAX and self._index.count_rivals(item, ACCEPTED_MAX - 1) < ACCEPTED_MAX

    def _name(self, answer: Product, rng: Random) -> list[str]:
        """Words of the title, in its order: the rarest, until few enough titles hold them all, then some more."""
        words = _telling_words(answer.title)
        ranked = sorted(words, key=lambda word: (self._index.rarity(word), word))
        count = _NAME_WORDS[0]
        while count < min(_NAME_WORDS[1], len(ranked)) and self._index.count_holding(ranked[:count]) > _NAMESAKES_MAX:
            count += 1
        chosen = set(ranked[:count])
        chosen.update(rng.sample(words, min(len(words), rng.randint(1, 3))))
        return [word for word in words if word in chosen]

    def _draw(self, order: _SynthesisOrder, is_one_shop: bool, rng: Random) -> list[int]:
        """Places of untaken answers of different classes, as many as the order asks; none: draw again."""
        least, most = order.items
        count = rng.randint(max(2, least) if is_one_shop else least, max(2, most) if is_one_shop else most)
        if is_one_shop:
            pool = self._draw_shop(rng)
            pool = self._distinct(rng.sample(pool, len(pool)))
            return pool[:count] if len(pool) >= count else []
        drawn = self._distinct(self._draw_free(rng) for _ in range(count))
        return drawn if len(drawn) == count else []

    def _draw_free(self, rng: Random) -> int:
        """Any untaken place, or -1 when none is left. Taken ones that are met on the way are dropped for good."""
        while self._free:
            at = rng.randrange(len(self._free))
            if int(self._classes[self._free[at]]) not in self._taken:
                return self._free[at]
            self._free[at] = self._free[-1]
            self._free.pop()
        return -1

    def _draw_shop(self, rng: Random) -> list[int]:
        """The untaken places of a shop that has at least two, or none. Shops without are dropped for good."""
        while self._shops:
            at = rng.randrange(len(self._shops))
            left = [place for place in self._shops[at] if int(self._classes[place]) not in self._taken]
            if len(left) >= 2:
                self._shops[at] = left
                return left
            self._shops[at] = self._shops[-1]
            self._shops.pop()
        return []

    def _distinct(self, places: Iterable[int]) -> list[int]:
        """The first place of each class, without the -1 of an empty draw."""
        by_class: dict[int, int] = {}
        for place in places:
            if place >= 0:
                by_class.setdefault(int(self._classes[place]), place)
        return list(by_class.values())


def _telling_words(title: str) -> list[str]:
    """The title's words in order, each once, without fillers."""
    return list(dict.fromkeys(word for word in _NAME_WORD.findall(title.lower()) if word not in _FILLERS))


ACCEPTED_MAX = 3


def measure_ambiguity(
    problem: Problem, index: TitleIndex, titles: TitleMatcher | None = None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Per item of a problem, how many products satisfy it, and how many fit its words. `titles`: `lexical/1` when left
    out; under a title release satisfying is by its lists. Raises ArenaError V2040 for a title it does not know."""
    named = zip(problem.rewards, said_names(problem), strict=True)
    accepted = tuple(len(index.accepted(item, titles)) for item in problem.rewards)
    return accepted, tuple(count_fitting(item, words, index) for item, words in named)


def count_fitting(item: RewardItem, words: Sequence[str], index: TitleIndex) -> int:
    """How many products hold all the words in their title and meet what the item asks besides its title."""
    untitled = msgspec.structs.replace(item, title=())
    axes = (match(untitled, product, LexicalTitles()) for product in index.holding(words))
    return sum(one.hits == one.total for one in axes)


Level = Literal["easy", "medium", "hard"]
_MEDIUM_FROM_E4, _HARD_FROM_E4 = 40_000, 70_000


def difficulty_of(problem: Problem, index: TitleIndex) -> Level:
    """How hard a problem is over the catalogue it is asked of: by constraints, by titles that hold all the title words
    that the query says, and by items. An answer that is not there has no such namesakes."""
    namesakes = (index.count_holding(words) for words in said_names(problem))
    constraints = sum(ask(item).total - len(item.title) for item in problem.rewards)
    points = constraints + 2 * sum(max(0, count - 1).bit_length() for count in namesakes)
    items = len(problem.rewards)
    points_e4 = 10_000 * points // items + 10_000 * (items - 1)
    return "easy" if points_e4 < _MEDIUM_FROM_E4 else "medium" if points_e4 < _HARD_FROM_E4 else "hard"
