"""What judges make of labelled traces: accuracy, kappa, what moves a quality that should not, and what it cost.

The same traces and replies give the same result, byte for byte (integers, no clock); a verdict that is owed is
counted as owed and is in no accuracy. A result names by hash all that it was measured with, so a policy can pin it.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from foundation.canonical import canonical_bytes, content_hash
from foundation.errors import ArenaError
from foundation.long_work import Progress, no_progress
from judge.calibration.traces import SET_VERSION, LabelledTrace, Trait, families
from judge.panel import judge_body
from judge.render import RENDERER, Judge
from judge.rubric import QUALITY_LEVELS_E4, Rubric
from judge.verdict import UnscoredVerdict, Verdict

Pair = tuple[int, int]  # what is true or the first rater says, and what the second says
_DRAWS = 1_000
_TAIL = 0.025


def quadratic_kappa(pairs: Sequence[Pair]) -> float | None:
    """Cohen's kappa with quadratic weights; None where it is not defined: no pair, or one level throughout."""
    if not pairs:
        return None
    observed = sum((one - other) ** 2 for one, other in pairs)
    first, second = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    expected = sum((one - other) ** 2 * n * m for one, n in first.items() for other, m in second.items())
    return 1 - observed * len(pairs) / expected if expected else None


def kappa_interval(pairs: Mapping[str, Sequence[Pair]]) -> tuple[float, float] | None:
    """95 % interval of kappa, drawing whole clusters (the keys): traces of one run are not independent."""
    dice, clusters = random.Random(0), sorted(pairs)
    if not clusters:
        return None
    drawn = (
        quadratic_kappa([pair for name in dice.choices(clusters, k=len(clusters)) for pair in pairs[name]])
        for _ in range(_DRAWS)
    )
    found = sorted(value for value in drawn if value is not None)
    return (found[int(_TAIL * len(found))], found[int((1 - _TAIL) * len(found)) - 1]) if found else None


DOMAIN = b"agent-arena/judge-calibration/1\n"
Verify = Callable[[str, bytes, bytes], bool]


class SignedCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """`result` is canonical JSON of a `Calibration`; `signature` is hex over the domain tag and these bytes."""

    result: str
    hotkey: str
    signature: str

    @property
    def sha256(self) -> str:
        """What a policy pins."""
        return hashlib.sha256(self.result.encode()).hexdigest()


def sign_calibration(found: Calibration, hotkey: str, sign: Callable[[bytes], bytes]) -> SignedCalibration:
    """The signed result."""
    result = canonical_bytes(found)
    return SignedCalibration(result=result.decode(), hotkey=hotkey, signature=sign(DOMAIN + result).hex())


def check_calibration(signed: SignedCalibration, rubric: Rubric, verify: Verify) -> Calibration:
    """The result, once its signature holds and it was measured with the rubric's panel and prompt; where the rubric
    pins a result, it is that one.

    Raises ArenaError V2050 naming what does not hold.
    """
    try:
        signature = bytes.fromhex(signed.signature)
        found = msgspec.json.decode(signed.result, type=Calibration)
    except (ValueError, msgspec.DecodeError) as error:
        raise ArenaError("V2050", f"calibration cannot be read: {error}") from error
    if not verify(signed.hotkey, DOMAIN + signed.result.encode(), signature):
        raise ArenaError("V2050", f"the signature of the calibration is not {signed.hotkey}'s")
    pinned = rubric.calibration_sha256
    bare = msgspec.structs.replace(rubric, calibration_sha256="")
    if msgspec.structs.replace(found.rubric, calibration_sha256="") != bare:
        raise ArenaError("V2050", "the calibration was measured with another panel, rubric or prompt")
    if pinned and pinned != signed.sha256:
        raise ArenaError("V2050", f"the policy pins calibration {pinned[:12]}, this is {signed.sha256[:12]}")
    return found


class JudgedTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A labelled trace and its verdict, or why there is none."""

    trace: LabelledTrace
    verdict: Verdict | UnscoredVerdict

    @property
    def quality_e4(self) -> int | None:
        """The panel's; None while owed."""
        return self.verdict.quality_e4 if isinstance(self.verdict, Verdict) else None


class PopulationScores(msgspec.Struct, frozen=True, kw_only=True):
    """How well one population is judged. Shares and kappa in ten-thousandths; None: not defined. Intervals are 95 %,
    drawn by cluster. `mean_error_e4` is given less true quality."""

    name: str
    traces: int
    owed: int
    accuracy_e4: int | None
    kappa_e4: int | None
    kappa_low_e4: int | None
    kappa_high_e4: int | None
    mean_error_e4: int | None


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What changing one trait of a run alone does to its quality: how many pairs moved, and by how much on average."""

    trait: Trait
    pairs: int
    moved: int
    mean_change_e4: int


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over verdicts. `ms` is time that endpoints took; `requests` are replies, usable or not."""

    verdicts: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    ms: int = 0


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `set_sha256` covers every recipe with its body's hash."""

    version: int = 1
    set_version: int = SET_VERSION
    set_sha256: str
    rubric: Rubric
    renderer: str = RENDERER
    populations: tuple[PopulationScores, ...]  # all, tune, held, each family
    effects: tuple[Effect, ...]
    spent: Spending

    def population(self, name: str) -> PopulationScores:
        """One population. Raises StopIteration for an unknown name."""
        return next(one for one in self.populations if one.name == name)


def judge_traces(
    traces: Sequence[LabelledTrace],
    rubric: Rubric,
    judges: Sequence[Judge],
    *,
    at_once: int = 1,
    progress: Progress = no_progress,
) -> tuple[JudgedTrace, ...]:
    """A verdict on each trace, in their order, `at_once` at a time."""

    def one(trace: LabelledTrace) -> JudgedTrace:
        return JudgedTrace(trace=trace, verdict=judge_body(trace.body, rubric, judges))

    found: list[JudgedTrace] = []
    with ThreadPoolExecutor(at_once) as pool:
        for judged in pool.map(one, traces):
            found.append(judged)
            progress("judge", len(found), len(traces))
    return tuple(found)


def measure(judged: Sequence[JudgedTrace], rubric: Rubric, spent: Spending) -> Calibration:
    """The result over judged traces."""
    groups: dict[str, list[JudgedTrace]] = {"all": list(judged), "tune": [], "held": []}
    for one in judged:
        groups[one.trace.split].append(one)
        groups.setdefault(one.trace.recipe.family, []).append(one)
    return Calibration(
        set_sha256=content_hash([[one.trace.recipe, one.trace.body.body_hash()] for one in judged]),
        rubric=rubric,
        populations=tuple(_rated(name, group) for name, group in groups.items()),
        effects=tuple(_effects(judged)),
        spent=msgspec.structs.replace(spent, ms=0),  # a clock's word, and no result
    )


def _rated(name: str, judged: Sequence[JudgedTrace]) -> PopulationScores:
    clusters: defaultdict[str, list[Pair]] = defaultdict(list)
    for one in judged:
        if one.quality_e4 is not None:
            clusters[one.trace.cluster].append(
                (QUALITY_LEVELS_E4.index(one.trace.quality_e4), QUALITY_LEVELS_E4.index(one.quality_e4))
            )
    pairs = [pair for of_cluster in clusters.values() for pair in of_cluster]
    interval = kappa_interval(clusters)
    step_e4 = QUALITY_LEVELS_E4[1] - QUALITY_LEVELS_E4[0]
    return PopulationScores(
        name=name,
        traces=len(judged),
        owed=len(judged) - len(pairs),
        accuracy_e4=_e4(sum(one == other for one, other in pairs) / len(pairs)) if pairs else None,
        kappa_e4=_e4(quadratic_kappa(pairs)),
        kappa_low_e4=_e4(interval[0]) if interval else None,
        kappa_high_e4=_e4(interval[1]) if interval else None,
        mean_error_e4=sum(said - true for true, said in pairs) * step_e4 // len(pairs) if pairs else None,
    )


def _effects(judged: Iterable[JudgedTrace]) -> Iterable[Effect]:
    by_place = {(one.trace.recipe.family, one.trace.recipe.problem): one.quality_e4 for one in judged}
    changes: defaultdict[Trait, list[int]] = defaultdict(list)
    for family in families():
        for (name, problem), quality_e4 in by_place.items():
            before = by_place.get((family.pair, problem))
            if name == family.name and family.varies and quality_e4 is not None and before is not None:
                changes[family.varies].append(quality_e4 - before)
    for trait, moves in sorted(changes.items()):
        yield Effect(
            trait=trait, pairs=len(moves), moved=sum(map(bool, moves)), mean_change_e4=sum(moves) // len(moves)
        )


def _e4(value: float | None) -> int | None:
    return None if value is None else round(value * 10_000)
