"""From exports and foreign files to corpus folders: the whole way, for one filter or for several to compare.

Sources are read once, whatever the number of filters; every corpus of a comparison has the same number of
rows, or of tokens where its name says so, drawn by seed; nothing is written before every filter has kept something. An
export is verified before a row of it is read. The lineage names each source by its hash, and says where an unsigned or
foreign one was trusted. A build that was killed leaves nothing under its name, and is begun anew.
"""

from __future__ import annotations

import functools
import hashlib
import sqlite3
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from arena.chain.port import Verifier
from arena.export.files import whole_folder
from foundation.canonical import file_sha256
from foundation.errors import ArenaError
from foundation.executors import HERE, Executor
from foundation.long_work import Progress
from problems.model import Bucket
from training.corpus.corpus_files import write_corpus
from training.corpus.exports import export_shards, open_export
from training.corpus.foreign import foreign_shards
from training.corpus.gates import NEVER_OFF
from training.corpus.model import CorpusRow, Lineage, RejectCode, Rules
from training.corpus.report import CODES, Funnel, funnel_of
from training.corpus.selection import Appraised, Decision, Guard, Shard, Task, appraise, decide, kept_rows, rejections
from training.corpus.tokens import open_counter

PER_TRACE = CODES[CODES.index("coefficient") : CODES.index("view_incomplete") + 1]
SET_LEVEL = CODES[CODES.index("duplicate") : CODES.index("ranked_out") + 1]
SWEEP_E4 = (0, 5_000, 7_000, 8_000, 9_000, 10_000)

_ONE_SWITCH: Mapping[str, tuple[RejectCode, ...]] = {  # gates that are one rule in two forms go off together
    "agentic_split": ("subtask", "subtask_guess"),
    "deduplication": ("duplicate", "near_duplicate"),
    "ranking": ("ranked_out",),
}


BY_TOKENS = "_by_tokens"  # what the name of an arm ends with that is matched so


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One filter of a comparison, by name, and what its corpus is to have as many of as the others."""

    name: str
    rules: Rules
    by: Literal["rows", "tokens"] = "rows"


def ablations(rules: Rules) -> tuple[Arm, ...]:
    """`full` (the rules themselves), `no_structural_filter`, `outcome_only`, `format_only`, one arm for each gate
    switched off, and the sweep; each but `full` by rows, and again by tokens.

    The token budget stays on where all else is off, since a trainer cannot take a longer row; it is off in its own arm
    only, which shows what it costs. `outcome_only` takes every success, whoever made it and however. `format_only` is
    what a trainer can read: `full` with what code drove beside it, as often as it was recorded, judged or not.
    """
    grouped = {code for codes in _ONE_SWITCH.values() for code in codes}
    single: dict[str, tuple[RejectCode, ...]] = {code: (code,) for code in PER_TRACE if code not in grouped}
    switches = {**single, **_ONE_SWITCH}
    everything = tuple(code for code in (*PER_TRACE, *SET_LEVEL) if code != "tokens")
    unfiltered = without(rules, everything)
    arms = [
        Arm(name="no_structural_filter", rules=unfiltered),
        Arm(name="outcome_only", rules=msgspec.structs.replace(unfiltered, is_success_needed=True)),
        Arm(name="format_only", rules=without(rules, ("coefficient", "subtask", "subtask_guess", *SET_LEVEL))),
    ]
    arms += [Arm(name=f"no_{name}", rules=without(rules, codes)) for name, codes in switches.items()]
    arms += [
        Arm(name=f"coefficient_{one}", rules=msgspec.structs.replace(rules, coefficient_e4_min=one))
        for one in SWEEP_E4
        if one != rules.coefficient_e4_min
    ]
    by_tokens = [Arm(name=f"{arm.name}{BY_TOKENS}", rules=arm.rules, by="tokens") for arm in arms]
    return (Arm(name="full", rules=rules), *arms, *by_tokens)


def without(rules: Rules, codes: Sequence[RejectCode]) -> Rules:
    """The rules with some gates off. Raises ValueError for the guard's codes and for ones that do not exist."""
    wrong = [code for code in codes if code in NEVER_OFF or code not in get_args(RejectCode)]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} cannot be switched off")
    return msgspec.structs.replace(rules, off=tuple(sorted({*rules.off, *codes})))


FULL = "full"  # the arm that is the corpus' own rules


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What is read. `hashes` are of the manifests and foreign files, sorted; `names` the exports' agents by id."""

    shards: tuple[Shard, ...]
    hashes: tuple[str, ...]
    is_trusted_unsigned: bool
    names: dict[str, str] = {}


class Filtered(msgspec.Struct, frozen=True, kw_only=True):
    """Sources under some filters, before anything is written. `arms` and `decisions` stand side by side."""

    sources: Sources
    task: Task
    appraised: Appraised
    arms: tuple[Arm, ...]
    decisions: tuple[Decision, ...]
    funnels: tuple[Funnel, ...]


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """One corpus on disk."""

    name: str
    folder: str
    lineage: Lineage
    funnel: Funnel


def read_rules(path: Path | None, said: Sequence[str] = ()) -> Rules:
    """The rules in a TOML or JSON file, those said as `KEY=VALUE` over them (a list's values between commas); what
    neither names is the paper's. Raises ArenaError V2120 naming an unknown key, or a value that is not allowed."""
    place, values = str(path or "--rule"), dict[str, Any]()
    if path is not None:
        try:
            text = path.read_text("utf-8")
            values = msgspec.json.decode(text) if path.suffix == ".json" else tomllib.loads(text)
        except (OSError, UnicodeDecodeError, msgspec.DecodeError, tomllib.TOMLDecodeError) as wrong:
            raise ArenaError("V2120", f"{place}: {wrong}") from None
    for one in said:
        key, _, value = one.partition("=")
        values[key] = [part for part in value.split(",") if part] if key == "off" else value
    try:
        rules = msgspec.convert(values, Rules, strict=not said)
        Task(arms=(rules,))
    except (msgspec.ValidationError, ValueError) as wrong:
        raise ArenaError("V2120", f"{place}: {wrong}; rules are {', '.join(Rules.__struct_fields__)}") from None
    return rules


def arms_of(rules: Rules, names: Collection[str]) -> tuple[Arm, ...]:
    """The filters to compare: the corpus' own first, then those named. Raises ArenaError V2120 for an unknown name."""
    every = {arm.name: arm for arm in ablations(rules)}
    if unknown := sorted(set(names) - every.keys()):
        raise ArenaError("V2120", f"no ablation is called {unknown[0]!r}; there are {', '.join(every)}")
    return tuple(arm for name, arm in every.items() if name == FULL or name in names)


def open_sources(
    exports: Sequence[Path],
    foreign: Sequence[Path],
    verify_signature: Verifier,
    *,
    trust_unsigned: bool = False,
    seals: Path | None = None,
    executor: Executor = HERE,
    progress: Progress | None = None,
    locations: Mapping[Path, str] = {},
) -> Sources:
    """Verify every export and hash every foreign file. `locations`: from where exports were brought (`bring_export`);
    machines without the folder read their shards there. Raises ArenaError V2095, V2050, V2027."""
    shards: list[Shard] = []
    hashes: set[str] = set()
    names: dict[str, str] = {}
    is_trusted = bool(foreign)
    for folder in exports:
        report = functools.partial(progress, f"verify {folder.name}"[:24]) if progress else None
        export = open_export(
            folder,
            verify_signature,
            trust_unsigned=trust_unsigned,
            seals=seals,
            executor=executor,
            progress=report,
            location=locations.get(folder, ""),
        )
        if export.manifest_sha256 not in hashes:  # named twice: read once
            shards += export_shards(export)
            names |= export.names
        hashes.add(export.manifest_sha256)
        is_trusted |= not export.is_verified
    for path in foreign:
        try:
            sha256 = file_sha256(path)
        except OSError as wrong:
            raise ArenaError("V2027", f"{path}: {wrong.strerror}") from None
        if sha256 not in hashes:
            shards += foreign_shards(path)
        hashes.add(sha256)
    return Sources(shards=tuple(shards), hashes=tuple(sorted(hashes)), is_trusted_unsigned=is_trusted, names=names)


def filter_sources(
    sources: Sources,
    task: Task,
    arms: Sequence[Arm],
    guard: Guard,
    *,
    executor: Executor = HERE,
    progress: Progress | None = None,
) -> Filtered:
    """Read everything once and decide for every arm; several arms are cut to one size.

    An arm that keeps nothing is left as it is: `Filtered.funnels` shows it, `write_filtered` refuses it. Raises what
    reading a shard raises, and ArenaError V2120, V2052, V2027.
    """
    task = msgspec.structs.replace(task, arms=tuple(arm.rules for arm in arms))
    report = functools.partial(progress, "filter") if progress else None
    appraised = appraise(sources.shards, task, guard, executor=executor, progress=report)
    compared = functools.partial(progress, "compare") if progress else None
    decided, decisions = list(arms), [decide(appraised, arm.rules, progress=compared) for arm in arms]

    def cut(by: Literal["rows", "tokens"], most: int) -> None:
        """Decide again for the arms that are matched by rows, or by tokens, with at most so many."""
        for place, arm in enumerate(decided):
            if arm.by == by:
                rules = msgspec.structs.replace(arm.rules, **{by: most})
                decided[place] = msgspec.structs.replace(arm, rules=rules)
                decisions[place] = decide(appraised, rules, progress=compared)

    if len(arms) > 1 and all(one.kept for one in decisions):
        cut("rows", min(one.kept for arm, one in zip(arms, decisions, strict=True) if arm.by == "rows"))
        first = zip(appraised, decisions[0].ranks, strict=True)
        cut("tokens", sum(trace.tokens or 0 for trace, rank in first if rank))
    return Filtered(
        sources=sources,
        task=task,
        appraised=appraised,
        arms=tuple(decided),
        decisions=tuple(decisions),
        funnels=tuple(funnel_of(appraised, one, sources.names) for one in decisions),
    )


def write_filtered(
    filtered: Filtered,
    out: Path,
    guard: Guard,
    *,
    partition_sha256: str,
    code_commit: str,
    executor: Executor = HERE,
    progress: Progress | None = None,
) -> tuple[Built, ...]:
    """Write the corpus to `out`, or for several arms each to a folder of its name in `out`, all of them or none.

    `partition_sha256`, `code_commit`: what the lineage says beside rules, sources and rows.
    Raises ArenaError V2147 when an arm kept nothing (before anything is written), V2099, V2027.
    """
    arms = list(zip(filtered.arms, filtered.decisions, filtered.funnels, strict=True))
    if empty := [arm.name for arm, one, _ in arms if not one.kept]:
        raise ArenaError("V2147", "" if len(arms) == 1 else f"under {', '.join(empty)}")
    count, total = 0, sum(one.kept for one in filtered.decisions)

    def counted(rows: Iterable[CorpusRow]) -> Iterator[CorpusRow]:
        nonlocal count
        for row in rows:
            yield row
            count += 1
            if progress:
                progress("write", count, total)

    built: list[Built] = []
    try:
        with whole_folder(out) as made:
            for arm, decision, funnel in arms:
                below = () if len(arms) == 1 else (arm.name,)
                lineage = write_corpus(
                    made.joinpath(*below),
                    counted(kept_rows(filtered.sources.shards, filtered.appraised, decision, executor=executor)),
                    lineage=Lineage(
                        rules=arm.rules,
                        sources=filtered.sources.hashes,
                        is_trusted_unsigned=filtered.sources.is_trusted_unsigned,
                        tokenizer_sha256=counter_of(filtered.task),
                        partition_sha256=partition_sha256,
                        code_commit=code_commit,
                        rows_sha256="",
                    ),
                    funnel=funnel,
                    rejected=rejections(filtered.appraised, decision),
                    guard=guard,
                )
                built.append(Built(name=arm.name, folder=str(out.joinpath(*below)), lineage=lineage, funnel=funnel))
    except sqlite3.Error as wrong:
        raise ArenaError("V2027", f"{out}: {wrong}") from None
    return tuple(built)


def counter_of(task: Task) -> str:
    """What tokens are counted by; "" where nothing counts them."""
    is_counted = any("tokens" not in rules.off for rules in task.arms)
    return open_counter(task.tokenizer).identity if is_counted else ""


WHOLE_E4 = 10_000


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    """A mixing recipe. `corpus_share_e4` of the rows come from the corpus, the rest from the rollouts."""

    corpus_share_e4: int = 5_000  # 7_000 for 70/30
    voucher_times: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.corpus_share_e4 <= WHOLE_E4 or self.voucher_times < 1:
            raise ValueError("a share lies between 0 and 10,000, and every row stands at least once")


class MixRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row to be mixed, by a key of its own (trace id and place, or a rollout's id)."""

    key: str
    bucket: Bucket | None = None


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the mix: index into the corpus or the rollouts, and which of its copies it is, from 0."""

    is_corpus: bool
    index: int
    copy: int


def mix(corpus: Sequence[MixRow], rollouts: Sequence[MixRow], recipe: Mix) -> tuple[Draw, ...]:
    """The rows to train on, shuffled by the seed.

    The largest mix of the recipe's shares, to within one row. Raises ValueError when a part that is to have a share
    has no rows, or when two rows of a part have one key.
    """
    parts = {True: _copies(corpus, True, recipe), False: _copies(rollouts, False, recipe)}
    share = {True: recipe.corpus_share_e4, False: WHOLE_E4 - recipe.corpus_share_e4}
    asked = [part for part in parts if share[part]]
    if any(not parts[part] for part in asked):
        raise ValueError("a part that the recipe asks for has no rows")
    total = min(len(parts[part]) * WHOLE_E4 // share[part] for part in asked)
    from_corpus = total * share[True] // WHOLE_E4
    taken = [*parts[True][:from_corpus], *parts[False][: total - from_corpus]]
    return tuple(draw for _, draw in sorted(taken, key=lambda one: _lot(recipe.seed, "order", one[0])))


def _copies(rows: Sequence[MixRow], is_corpus: bool, recipe: Mix) -> list[tuple[str, Draw]]:
    """Every copy of every row with its name, in the order in which they are drawn."""
    if len({row.key for row in rows}) != len(rows):
        raise ValueError("two rows of one part have the same key")
    part = "corpus" if is_corpus else "rollouts"
    copies = [
        (f"{part} {row.key} {copy}", Draw(is_corpus=is_corpus, index=index, copy=copy))
        for index, row in enumerate(rows)
        for copy in range(recipe.voucher_times if row.bucket == "voucher" else 1)
    ]
    return sorted(copies, key=lambda one: _lot(recipe.seed, "draw", one[0]))


def _lot(seed: int, purpose: str, name: str) -> bytes:
    return hashlib.sha256(f"{seed} {purpose} {name}".encode()).digest()
