"""What a trace alone decides: the gates of the filter, each of one rule, and the leak guard.

A gate is a pure function of a trace and the rules, so what a trace is rejected for does not depend on other traces or
on the order of the gates; the order here is cheap first. The rules are those of the paper: the coefficient gate (paper
section 5), the five format rejects (A.2) and the agentic split (paper section 5). Tokens are counted by
`training.corpus.tokens`.

The guard lets no trace of a held-out problem, or of one in its leak cluster, into a corpus. The partition manifest
decides (paper A.4). A trace of the arena carries the pool and cluster its race released, signed; yet an agent may
answer its problem with the product that another one holds out, so the answer of every trace is held against what is
known here: ids and title classes. A trace from elsewhere carries no pool, so it is matched by its query too, and kept
out where its problem cannot be known: a missing row costs less than a leak. What such a row says of its own pool can
only keep it out. Pure, picklable, the same in any order; no switch turns it off, and only the one pool it admits is let
in. Asked at every join (`require_clean`) and again by the writer of a corpus.

Not a gate's business: what only a set can tell (duplicates, ranking), and repairing anything.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from foundation.canonical import UNREADABLE_JSON, content_hash, objects_in
from foundation.errors import ArenaError
from harness.chat import Call, Message
from problems.clusters import NO_CATALOGUE, SIMILARITY_MIN_E4, ProductClasses, answer_marks, content_words, title_key
from problems.model import Pool, Problem
from problems.partition import OpenPartition, PartitionManifest, pools_of_answers
from problems.score import parse_recommendation
from problems.titles import title_words
from training.corpus.model import JUDGE, NO_TOOLS, CorpusPool, RejectCode, Rules, Trace

_WORD = re.compile(r"[^\W\d_]{3,}")
QUERY_KEYS = ("q", "query")
_COPIED_WORDS = 8  # a product's name is shorter
_SPOKEN_E4 = 3_500  # of a search's words, in the text of its turn
_SWEEP_MIN = 4  # pages
_OBJECT, _FIELDS = msgspec.json.Decoder(dict), msgspec.json.Decoder(dict[str, Any])


def looks_subtask(trace: Trace) -> bool:
    """Whether the calls look written by the Python around the model: it makes no call at all; a quarter of its turns
    only talk; it opens with a silent search, and later texts do not name what is searched for; it searches for a
    stretch of the request as it stands; or page after page of one search, without a word between."""
    turns = [message for message in trace.messages if message.role == "assistant"]
    calling = [turn for turn in turns if turn.calls]
    if not calling or sum(not turn.calls for turn in turns[:-1]) * 4 >= len(turns):
        return True
    request = " ".join(trace.query.casefold().split())
    queries = [query_of(call) for turn in calling for call in turn.calls]
    if any(query.count(" ") >= _COPIED_WORDS - 1 and query in request for query in queries):
        return True
    speaking = [turn for turn in calling if _spoken_text(turn)]
    is_silent_search = not _spoken_text(turns[0]) and any(query_of(call) for call in turns[0].calls)
    return (is_silent_search and bool(speaking) and not _are_named(speaking)) or _is_sweep(calling)


def _spoken_text(turn: Message) -> str:
    """Everything a turn says, thought or said."""
    return f"{turn.reasoning} {turn.content}".strip()


def query_of(call: Call) -> str:
    """The search words of a `find_*` call, spacing and case evened out; "" for any other call."""
    return _query(call.arguments) if call.name.startswith("find_") else ""


@functools.lru_cache(maxsize=1024)  # every reading of a trace asks for its queries again
def _query(arguments: str) -> str:
    fields = json_fields(arguments)
    text = next((value for key in QUERY_KEYS if isinstance(value := fields.get(key), str)), "")
    return " ".join(text.casefold().split())


def json_fields(text: str) -> dict[str, Any]:
    """The fields of a JSON object; none of any other text, such as one that was cut."""
    try:
        return _FIELDS.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}


def _are_named(speaking: Sequence[Message]) -> bool:
    """Whether the turns search, and their own texts hold the words they search for; a word counts once a turn."""
    held = total = 0
    for turn in speaking:
        words = {word for call in turn.calls for word in _WORD.findall(query_of(call))}
        held += len(words.intersection(_WORD.findall(_spoken_text(turn).casefold())))
        total += len(words)
    return total > 0 and held * 10_000 >= _SPOKEN_E4 * total


def _is_sweep(calling: list[Message]) -> bool:
    """Whether one search's pages follow each other with nothing said from the second on."""
    length, before = 1, ""
    for turn in calling:
        is_silent = not _spoken_text(turn)
        for number, call in enumerate(turn.calls):
            query = query_of(call)
            length = length + 1 if query and query == before and (is_silent or number) else 1
            before = query
            if length >= _SWEEP_MIN:
                return True
    return False


Gates = Mapping[RejectCode, Callable[[Trace], bool]]  # by its code, whether a trace breaks a rule

AGENTIC_SHARE_E4 = 9_500  # docs/architecture.md#who-wrote-a-call
RECOMMEND, TERMINATE = "recommend_product", "terminate"
_HARNESS_KINDS = ("arena", "sn15")  # their recommend_product reads one comma-separated text and nothing else


def calls_of(trace: Trace) -> Iterator[Call]:
    """The tool calls of the assistant's turns, in order."""
    for message in trace.messages:
        if message.role == "assistant":
            yield from message.calls


def codes_by_rules(
    coefficient_e4: int | None, is_success: bool | None, rules: Rules, *, is_unjudged: bool
) -> Iterator[RejectCode]:
    """What depends on the rules' values, and so may differ between rules over traces that were read once: the judge's
    coefficient is below the threshold, or there is no verdict (paper section 5; not asked of a source that has no
    judge); the rules ask for a success, and the outcome was none (an ablation's)."""
    if not is_unjudged and (coefficient_e4 is None or coefficient_e4 < rules.coefficient_e4_min):
        yield "coefficient"
    if rules.is_success_needed and is_success is not True:
        yield "failed"


def _recommends_once(trace: Trace) -> bool:
    """Whether recommend_product is called exactly once and ends the work (A.2, rule 2): terminate alone may follow."""
    names = [call.name for call in calls_of(trace)]
    return names.count(RECOMMEND) == 1 and {*names[names.index(RECOMMEND) + 1 :]} <= {TERMINATE}


def _stops_thinking(trace: Trace) -> bool:
    """Whether the trace ends without a commitment (A.2, rule 5): its last call is neither recommend_product nor
    terminate, or it ends in an assistant turn that only thinks."""
    last_call = next((m.calls[-1] for m in reversed(trace.messages) if m.role == "assistant" and m.calls), None)
    if last_call is None or last_call.name not in (RECOMMEND, TERMINATE):
        return True
    last = trace.messages[-1]
    said = last.content.rpartition("</think>")[2].partition("<think>")[0]  # beside its thinking
    return last.role == "assistant" and not last.calls and not said.strip()


def is_paired(messages: Sequence[Message]) -> bool:
    """Whether every call is answered exactly once right after its turn, and every result answers one."""
    index = 0
    while index < len(messages):
        message, index = messages[index], index + 1
        if message.role == "tool":
            return False
        if message.role != "assistant":
            continue
        first = index
        while index < len(messages) and messages[index].role == "tool":
            index += 1
        answers = messages[first:index]
        if sorted(call.id for call in message.calls) != sorted(answer.call_id for answer in answers):
            return False
    return True


def names_unknown(trace: Trace, known_ids: Collection[str] | None = None) -> bool:
    """Whether a recommendation is not a JSON object with ids that the search server returned or can return (A.2, rule
    3). `known_ids`: the ids that it can return, for traces that do not record what it returned."""
    surfaced = trace.facts.surfaced
    # a foreign row shows less than a record does, so what the catalogue has is good there too
    known = known_ids if surfaced is None or trace.source.kind != "arena" else None
    returnable = [ids for ids in (surfaced, known) if ids is not None]
    for call in calls_of(trace):
        if call.name == RECOMMEND:
            ids = recommended_ids(call.arguments, is_strict=trace.source.kind in _HARNESS_KINDS)
            if not ids or not all(any(one in some for some in returnable) for one in ids):
                return True
    return False


def recommended_ids(arguments: str, *, is_strict: bool) -> tuple[str, ...]:
    """The ids of a recommend_product call; empty when it has none that can be read.

    Strict is what the tool itself reads: `product_ids` as one comma-separated text. Foreign corpora also write a list
    of texts, or `product_id` (docs/benchmark.md#traces-met-elsewhere).
    """
    fields = json_fields(arguments)
    value = fields.get("product_ids")
    if not is_strict:
        value = fields.get("product_id") if value is None else value
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            value = ",".join(value)
    return parse_recommendation(value)[0]


def _has_broken_call(trace: Trace) -> bool:
    """Whether a call to learn is one that no server reads out of a turn, or of a tool that was not offered."""
    offered = None if trace.tools == NO_TOOLS else _tool_names(trace.tools)
    for turn in trace.messages:
        for call in turn.calls if turn.is_model else ():
            try:
                _OBJECT.decode(call.arguments)
            except UNREADABLE_JSON:
                return True
            if offered is not None and call.name not in offered:
                return True
    return False


@functools.lru_cache(maxsize=64)
def _tool_names(tools: str) -> frozenset[str] | None:
    try:
        return frozenset(tool["function"]["name"] for tool in msgspec.json.decode(tools))
    except (msgspec.DecodeError, TypeError, LookupError):
        return None


def recorded_split(trace: Trace) -> bool | None:
    """Whether the model wrote its own calls: by the record's own word, else by the emitters of its calls; None where
    neither is known. A rewritten run counts as one: code chose its calls, and thoughts that lead to them were asked for
    (paper, section 9)."""
    if trace.provenance == "rewritten" or trace.facts.is_agentic is not None:
        return trace.provenance == "rewritten" or trace.facts.is_agentic
    calls = list(calls_of(trace))
    return is_agentic(calls) if calls and all(call.emitter is not None for call in calls) else None


def is_agentic(calls: Sequence[Call]) -> bool:
    """Who wrote a call (docs/architecture.md), where the record does not say which calls surfaced the answer: the model
    wrote 0.95 of them, and every recommendation."""
    by_model = sum(call.emitter == "llm" for call in calls)
    if by_model * 10_000 < AGENTIC_SHARE_E4 * len(calls):
        return False
    return all(call.emitter == "llm" for call in calls if call.name == RECOMMEND)


def gates(known_ids: Collection[str] | None = None) -> Gates:
    """Every gate but the guard's, the token budget and what depends on the rules' values, cheap first.

    What the model said beside its calls does not count as unseen, no more than its thoughts: ReAct agents send neither
    back.
    """
    return {
        "not_one_path": lambda one: one.facts.is_linear is False and one.provenance == "verbatim",
        "view_incomplete": lambda one: one.rebuilt is not None and bool({*one.rebuilt.lacks} - {"remarks"}),
        "recommend_count": lambda one: not _recommends_once(one),
        "think_stop": _stops_thinking,
        "pairing": lambda one: not is_paired(one.messages),
        "recommend_arguments": lambda one: names_unknown(one, known_ids),
        "broken_call": _has_broken_call,
        "subtask": lambda one: recorded_split(one) is False,
        "subtask_guess": lambda one: recorded_split(one) is None and looks_subtask(one),
    }


def codes_of(trace: Trace, rules: Rules, every: Gates) -> tuple[RejectCode, ...]:
    """Every rule of its own and of `every` that a trace breaks, sorted; the ones in `rules.off` are left out."""
    facts = trace.facts
    found = set(codes_by_rules(facts.coefficient_e4, facts.is_success, rules, is_unjudged=JUDGE in trace.missing))
    found.update(code for code, breaks in every.items() if breaks(trace))
    return tuple(sorted(found.difference(rules.off)))


TRAINED: CorpusPool = "train"
WITHIN_MIN_E4 = 9_000  # of a held-out query's content words, the share that a longer text has to hold
_WORDS_MIN = 4  # a shorter query is in too many texts
TITLE_MIN_E4 = 7_000  # from which two titles count as one product: `lexical/1`, the matcher that decides rewards
_NAMED = 5  # places in an error


Leak = tuple[RejectCode, str]  # `pool`: not one of the pool admitted; `leak`: it touches a held-out problem; and why


class Guard:
    """Knows what is held out. Calling it gives the reject codes of a trace, none for one that may enter."""

    def __init__(
        self,
        manifest: PartitionManifest | None = None,
        held_out: Mapping[Pool, Iterable[Problem]] = {},
        *,
        partition: OpenPartition | None = None,
        classes: ProductClasses = NO_CATALOGUE,
        admits: CorpusPool = TRAINED,
    ) -> None:
        """`admits` is the pool whose traces may enter: `train`, or `dev` for a corpus that is never learnt. `manifest`
        is the bank's public one; `partition` the same with its key, where the operator has it.

        `held_out` are the problems of `eval`, `dev` and `never_touch` (the second set among them) that are known;
        without them and without the key no trace from outside the arena is let in. `classes` are the catalogue's.
        Raises ValueError where they hold problems of the training pool.
        """
        self._manifest = partition.manifest if partition is not None and manifest is None else manifest
        self._partition, self._classes, self._admits = partition, classes, admits
        clusters = () if self._manifest is None else self._manifest.rows
        self._pool_of_cluster = {name: row.pool for row in clusters for name in (row.cluster, *row.absorbed)}
        self._ids: dict[str, Pool] = {}
        self._marks: dict[str, Pool] = {}
        self._queries, self._titles = _Net(SIMILARITY_MIN_E4), _Net(TITLE_MIN_E4)
        if TRAINED in held_out:
            raise ValueError("problems of the training pool are not held out")
        for pool in sorted(held_out):
            for problem in held_out[pool]:
                self._ids[problem.problem_id] = pool
                self._marks.update(dict.fromkeys(answer_marks(problem, classes), pool))
                self._queries.add(content_words(problem.query), pool)
                for title in {title for item in problem.rewards for title in item.title}:
                    self._titles.add(title_words(title), pool)

    @property
    def partition_sha256(self) -> str:
        """What a lineage names: the manifest's hash, or a hash of the held-out problems where there is no manifest."""
        if self._manifest is not None:
            return self._manifest.sha256
        return content_hash([sorted(self._ids.items()), sorted(self._marks.items())])

    def __call__(self, trace: Trace) -> tuple[RejectCode, ...]:
        """The reject codes of a trace."""
        return tuple(leak[0] for leak in [self.find(trace)] if leak)

    def find(self, trace: Trace) -> Leak | None:
        """Why a trace may not enter, None for one that may."""
        facts = trace.facts
        if facts.pool not in (None, self._admits) or facts.suite is not None:
            return "pool", f"it is of {facts.pool or facts.suite}"
        if trace.source.kind == "arena" and facts.pool is None:
            return "pool", "no release says which pool it is of"
        if (pool := self._ids.get(facts.problem_id or "")) is not None:
            return "leak", f"its problem is held out for {pool}"
        pool = self._pool_of_cluster.get(facts.cluster_id or "")
        if pool not in (None, self._admits):
            return "leak", f"its cluster is held out for {pool}"
        is_vouched = trace.source.kind == "arena" and facts.cluster_id is not None
        if self._partition is None and not self._ids:
            return None if is_vouched else ("leak", "no held-out problems are known to hold it against")
        ids = answered(trace)
        titles = _titles(trace, ids)
        pools = self._pools_of_answer(ids, titles)
        if is_vouched:
            pools -= {TRAINED}  # a row of `dev` may name what is trained on; the other way round it may not
        if pools:
            return "leak", f"its answer is held out for {min(pools)}"
        if is_vouched:
            return None
        # its cluster is unproven, and its answer not held out: it is compared by its query, by resemblance
        # a row can name another query than the one its model read
        said = (message.content for message in trace.messages if message.role == "user")
        asked = tuple(dict.fromkeys(text for text in (trace.query, *said) if text))
        if not asked and not ids:
            return "leak", "neither its query nor its answer is known"
        if self._partition is not None:
            pools = set[Pool]().union(*map(self._partition.query_pools, asked)) - {self._admits}
            if pools:
                return "leak", f"its query is held out for {min(pools)}"
        near = [self._titles.nearest(title_words(title)) for title in titles]
        near += [self._queries.nearest(words) or self._queries.within(words) for words in map(content_words, asked)]
        resembled = next((pool for pool in near if pool is not None), None)
        if resembled is None:
            return None
        return "leak", f"its answer or query resembles one held out for {resembled}"

    def require_clean(self, traces: Iterable[Trace]) -> None:
        """Raises ArenaError V2099 when one of the traces may not enter, naming the first places."""
        found = [f"{trace.source.place}: {leak[1]}" for trace in traces if (leak := self.find(trace))]
        if found:
            raise ArenaError("V2099", f"{len(found)} in all; {'; '.join(found[:_NAMED])}")

    def _pools_of_answer(self, ids: Sequence[str], titles: Sequence[str]) -> set[Pool]:
        """The pools, but the admitted one, that hold out a problem which one of these products answers."""
        marks = {f"id {one}" for one in ids} | {f"title {title_key(title)}" for title in titles}
        for one in ids:
            marks |= {f"title {key}" for key in self._classes.keys_of(one)}
        pools = {self._marks[mark] for mark in marks & self._marks.keys()}
        if self._partition is not None:
            pools.update(pools_of_answers(self._partition, titles, ids, self._classes))
        return pools - {self._admits}


class _Net:
    """Word sets of what is held out, and which of them another set resembles (Jaccard, ten-thousandths)."""

    def __init__(self, similarity_min_e4: int) -> None:
        self._similarity_min_e4 = similarity_min_e4
        self._held: list[tuple[frozenset[str], Pool]] = []
        self._by_word: dict[str, list[int]] = defaultdict(list)

    def add(self, words: frozenset[str], pool: Pool) -> None:
        for word in words:
            self._by_word[word].append(len(self._held))
        self._held.append((words, pool))

    def nearest(self, words: frozenset[str]) -> Pool | None:
        """The pool of the first set that resembles this one."""
        for theirs, pool, count in self._sharing(words):
            if 10_000 * count >= self._similarity_min_e4 * (len(words) + len(theirs) - count):
                return pool
        return None

    def within(self, words: frozenset[str]) -> Pool | None:
        """The pool of the first set that stands nearly whole in this one: a query among other text."""
        for theirs, pool, count in self._sharing(words):
            if len(theirs) >= _WORDS_MIN and 10_000 * count >= WITHIN_MIN_E4 * len(theirs):
                return pool
        return None

    def _sharing(self, words: frozenset[str]) -> Iterator[tuple[frozenset[str], Pool, int]]:
        """Every held set with a word in common, and how many."""
        shared = Counter(number for word in words for number in self._by_word.get(word, ()))
        for number, count in sorted(shared.items()):
            yield *self._held[number], count


def answered(trace: Trace) -> tuple[str, ...]:
    """The ids a trace recommends: those its source names, and those of every recommend_product call."""
    calls = [call for call in calls_of(trace) if call.name == RECOMMEND]
    called = [one for call in calls for one in recommended_ids(call.arguments, is_strict=False)]
    return tuple(dict.fromkeys([*(trace.facts.recommended or ()), *called]))


def _titles(trace: Trace, ids: Sequence[str]) -> tuple[str, ...]:
    """Titles that results of the trace give the products it recommends."""
    wanted, titles = set(ids), dict[str, None]()
    for message in trace.messages:
        if message.role == "tool" and '"title"' in message.content and any(one in message.content for one in wanted):
            try:
                products = objects_in(msgspec.json.decode(message.content))
            except (msgspec.DecodeError, RecursionError):
                continue
            for product in products:
                one, title = product.get("product_id"), product.get("title")
                if isinstance(one, str) and one in wanted and isinstance(title, str):
                    titles[title] = None
    return tuple(titles)
