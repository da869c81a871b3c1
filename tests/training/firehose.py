"""A day of the subnet: the shipped agents on synthetic problems, then any number of distinct records made from them.

`real_episodes` runs agents through `arena.evaluate` with the scripted model and judge. `Firehose` makes records of a
wanted size from these by seeded mutation: product ids other than the answers' become others, and product titles grow,
everywhere in an episode at once, so that conversation, pairing, emitters, surfaced ids and citations still fit.
`write_records` writes such records, signed, into an export folder. What a record is, is known by construction:
`Made.agent` names the agent, `TRUTH` says what its traces are.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from arena.export.model import Manifest
from arena.policies import DEMO
from arena.records import model
from arena.records.body import decode_content
from foundation.canonical import canonical_bytes, text_hash
from harness.agents.registry import baseline_source, reference_agent, reference_sha256s
from harness.catalogue.build import build_index, write_documents
from harness.catalogue.native import open_catalogue
from harness.catalogue.synthetic import generate
from harness.inference.port import Upstream
from harness.inference.scripted.model import MODELS, ScriptedUpstream
from harness.sandbox.port import SandboxLevel
from harness.sandbox.probe import open_sandbox
from harness.trace import EvaluationBody, ToolCall
from judge.scripted import ScriptedJudge
from judge.verdict import Verdict
from neurons.settings.inputs import with_models
from problems.clusters import find_clusters
from problems.model import Bucket, OutcomeScore, Pool, Problem
from problems.synthesis import synthesize
from problems.titles import LexicalTitles
from tests.arena.export_stand import ExportLog, export
from training.corpus.exports import Export, export_shards
from training.corpus.model import Quarantined, Trace
from training.rollouts.rollout import InProcessSandbox

START_MS = 1_790_000_000_000  # 2026-09-21 13:33 UTC
MACHINE = model.HostFacts(machine="test", cores=2)
SIZES = (30_000, 60_000)  # bytes of a record's body

_EXPERT = "baseline:scripted-expert"
_SEARCH = 'tools.find_product(q=problem["query"][:80], page=1)'
_LOOP = "    for _ in range(MAX_STEPS):\n"
_ASK = "llm.chat(messages, "
# Two agents of our own beside the shipped ones: Python searches once and the model goes on; and one that forgets.
_MIXED = baseline_source("scripted-expert").replace(_LOOP, f"    {_SEARCH}\n{_LOOP}")
_PRUNER = baseline_source("scripted-expert").replace(_ASK, "llm.chat([*messages[:2], *messages[4:]], ")

AGENTS: Mapping[str, int] = {  # name -> how many of a day's records in a hundred are its
    _EXPERT: 40,
    "baseline:scripted-careful": 18,
    "baseline:scripted-hasty": 10,
    "subtask": 18,
    "mixed": 6,
    "pruner": 4,
    "echoer": 4,
}
COUNTS: Mapping[Bucket, int] = {"product": 4, "shop": 3, "voucher": 3}

_ROOM_BYTES_MIN = 10  # what a title grows by at least
_PLAIN_TITLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ,.()'-]{11,}")


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """One real episode."""

    agent: str
    problem: Problem
    cluster_id: str
    evaluation: Evaluation


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """One record to be: the canonical bytes of its body, and what stands around it."""

    agent: str
    problem_id: str
    cluster_id: str
    body: bytes
    evaluation: model.EvaluationRecord
    verdict: Verdict | None


def real_episodes(
    folder: Path,
    *,
    counts: Mapping[Bucket, int] = COUNTS,
    agents: Sequence[str] = tuple(AGENTS),
    sources: Mapping[str, str] = {},
    models: Mapping[str, Callable[[], Upstream]] = {},
    documents: int = 3_000,
    is_in_process: bool = False,
) -> list[Episode]:
    """Every agent once on each of `counts` synthetic problems, with the scripted model. `sources`: other agents by name
    instead, `models`: theirs. `folder` takes catalogue and guest; 0.1 s an episode, or less in this process."""
    products = list(generate(documents, 7))
    with (folder / "documents.jsonl").open("wb") as stream:
        write_documents(products, stream)
    build_index(folder / "documents.jsonl", folder / "index")
    own = {"mixed": _MIXED, "pruner": _PRUNER}
    sources = sources or {name: own.get(name) or reference_agent(name).source for name in agents}
    admitted = reference_sha256s() | {text_hash(source) for source in sources.values()}
    sandbox = (
        InProcessSandbox(admitted)
        if is_in_process
        else open_sandbox(folder, reference_sha256s=admitted, slots=1, wanted="reference-agents-only")
    )
    catalogue = open_catalogue(folder / "index")

    def run(name: str, source: str, problem: Problem) -> Evaluation:
        ports = EvaluatePorts(
            policy=with_models(DEMO, MODELS),
            catalogue=catalogue,
            titles=LexicalTitles(),
            sandbox=sandbox,
            upstreams=[models.get(name, ScriptedUpstream)()],
            judges=[ScriptedJudge()],
        )
        return evaluate(source, problem, ports)

    problems = synthesize(products, seed=3, counts=counts)
    cluster_of = {one: name for name, ids in find_clusters(problems).items() for one in ids}
    return [
        Episode(
            agent=name,
            problem=problem,
            cluster_id=cluster_of[problem.problem_id],
            evaluation=run(name, source, problem),
        )
        for problem in problems
        for name, source in sources.items()
    ]


class Firehose:
    """Records made from real episodes. Equal seeds and numbers give equal records."""

    def __init__(self, episodes: Sequence[Episode], *, seed: int = 0, sizes: tuple[int, int] = SIZES) -> None:
        self._templates: dict[str, list[_Template]] = {}
        for episode in episodes:
            template = _Template(episode)
            if template.can_grow(sizes[1]):
                self._templates.setdefault(episode.agent, []).append(template)
        words = {word for one in episodes for word in one.problem.query.split()}
        self._words = sorted(word for word in words if word.isascii() and word.isalpha())
        self._seed, self._sizes = seed, sizes

    def make(self, count: int) -> Iterator[Made]:
        """`count` records, agents in their shares, problems drawn; an agent version meets a problem once."""
        names = [name for name in AGENTS if name in self._templates]
        shares = [AGENTS[name] for name in names]
        used: Counter[int] = Counter()  # by template
        for number in range(count):
            rng = random.Random(f"firehose {self._seed} {number}")
            agent = rng.choices(names, shares)[0]
            template = rng.choice(self._templates[agent])
            used[id(template)] += 1
            size_bytes = rng.randint(*self._sizes)
            yield template.mutated(rng, f"{self._seed}-{number}:1", used[id(template)], size_bytes, self._words)

    def as_recorded(self) -> Iterator[Made]:
        """The real episodes themselves, each once, unchanged."""
        templates = [one for group in self._templates.values() for one in group]
        for number, template in enumerate(templates):
            yield template.unchanged(f"real-{number}:1")


class _Template:
    """One real episode, cut at every place where a mutation puts something else."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        evaluation = episode.evaluation
        body = canonical_bytes(evaluation.body).decode()
        answers = {item.product_id for item in episode.problem.rewards}
        calls = [event for event in evaluation.body.events if isinstance(event, ToolCall)]
        self._ids = sorted({one.product_id for call in calls for one in call.surfaced} - answers)
        self._titles = sorted(_titles(evaluation.body))
        marks = "|".join(re.escape(mark) for mark in sorted({*self._ids, *self._titles}, key=len, reverse=True))
        self._cut = re.compile(f"({marks})") if marks else None
        judged = evaluation.verdict if isinstance(evaluation.verdict, Verdict) else None
        told = [msgspec.json.encode(one).decode() if one else "" for one in (evaluation.outcome, judged)]
        self._texts = [self._parts(text) for text in (body, *told)]
        titles = set(self._titles)
        self._size, self._growing = len(body), sum(part in titles for part in self._texts[0])

    def can_grow(self, size_bytes_max: int) -> bool:
        """Whether mutated episodes of a wanted size, up to this one, can be made from it."""
        return self._growing > 0 and self._size + _ROOM_BYTES_MIN * self._growing < size_bytes_max

    def unchanged(self, attempt_id: str) -> Made:
        """The episode as it was."""
        return self._made(attempt_id, 0, ["".join(parts) for parts in self._texts])

    def mutated(self, rng: random.Random, attempt_id: str, miner: int, size_bytes: int, words: Sequence[str]) -> Made:
        """The episode with other ids and longer titles, of about `size_bytes`."""
        put = {one: f"{rng.randrange(10**9, 10**10)}" for one in self._ids}
        room_bytes = max(_ROOM_BYTES_MIN, (size_bytes - self._size) // self._growing)
        for title in self._titles:
            longer = f"{title} {' '.join(rng.choices(words, k=room_bytes))}"
            put[title] = longer[: len(title) + room_bytes].rstrip()
        texts = ["".join([put.get(part, part) for part in parts]) for parts in self._texts]
        return self._made(attempt_id, miner, texts)

    def _parts(self, text: str) -> list[str]:
        return self._cut.split(text) if self._cut else [text]

    def _made(self, attempt_id: str, miner: int, texts: Sequence[str]) -> Made:
        episode, original = self._episode, self._episode.evaluation
        body = texts[0].encode()
        body_sha256 = hashlib.sha256(body).hexdigest()
        evaluation = model.EvaluationRecord(
            attempt_id=attempt_id,
            subject=model.Subject(
                agent_version_id=text_hash(f"{episode.agent} {miner}"),
                miner_hotkey=f"5Miner{miner:03d}",
                agent_sha256=original.body.agent_sha256,
            ),
            context=model.Context(
                stage="race", race_id="race-1", problem_id=episode.problem.problem_id, batch_sha256="77"
            ),
            conditions=model.Conditions(
                policy_sha256=original.body.policy_sha256,
                scoring_pipeline="scoring/1",
                code_commit="f6",
                sandbox=SandboxLevel(
                    name="bubblewrap", layers=(), guest_sha256="d4", python_version="3.11", may_race=True
                ),
            ),
            body_sha256=body_sha256,
            stop=original.body.stop,
            failure=original.body.failure,
            is_agentic=original.body.is_agentic,
            totals=original.body.totals,
            outcome=msgspec.json.decode(texts[1], type=OutcomeScore),
        )
        verdict = msgspec.json.decode(texts[2], type=Verdict) if texts[2] else None
        return Made(
            agent=episode.agent,
            problem_id=episode.problem.problem_id,
            cluster_id=episode.cluster_id,
            body=body,
            evaluation=evaluation,
            verdict=msgspec.structs.replace(verdict, body_sha256=body_sha256) if verdict else None,
        )


def _titles(body: EvaluationBody) -> set[str]:
    """Titles in search results that read the same at any depth of JSON, and that nobody asked for by name."""
    found = set()
    for event in body.events:
        hits = msgspec.json.decode(event.result) if isinstance(event, ToolCall) and event.result[:1] == "[" else []
        for hit in hits:
            title = hit.get("title", "") if isinstance(hit, dict) else ""
            if _PLAIN_TITLE.fullmatch(title) and title.lower() not in body.query.lower():
                found.add(title)
    return found


_BATCH = 100


def write_day(firehose: Firehose, folder: Path, count: int, **options: Any) -> Manifest:
    """An export of `count` made records in `folder`. `options`: as of `write_records`."""
    return write_records(firehose.make(count), folder, **options)


def write_real_day(folder: Path, trajectories: int) -> Path:
    """A signed export below `folder`, log and Parquet view, ten trajectories a shard: a few real episodes, repeated."""
    (folder / "arena").mkdir()
    made = real_episodes(folder / "arena", counts={"product": 2, "shop": 1}, is_in_process=True)
    write_day(Firehose(made), folder / "export", trajectories, rows_per_shard=10)
    return folder / "export"


def write_records(
    records: Iterable[Made], folder: Path, *, pool_of: Mapping[str, Pool] = {}, **fields: Any
) -> Manifest:
    """A signed export of any records, log and Parquet unless `fields` of the request say otherwise. `pool_of` gives
    some problems (by id) another pool than train."""
    log, released = _DayLog(), dict[str, model.ReleasedProblem]()
    payloads, bodies = list[model.Payload](), list[model.StoredBody]()
    for made in records:
        released[made.problem_id] = model.ReleasedProblem(
            problem_id=made.problem_id, pool=pool_of.get(made.problem_id, "train"), cluster_id=made.cluster_id
        )
        body_sha256 = made.evaluation.body_sha256
        about = {"subject": made.evaluation.subject, "context": made.evaluation.context}
        attempt_id = made.evaluation.attempt_id
        payloads.append(model.AttemptRecord(attempt_id=attempt_id, ended="evaluated", body_sha256=body_sha256, **about))
        payloads.append(made.evaluation)
        payloads += [model.VerdictRecord(verdict=made.verdict, **about)] if made.verdict else []
        bodies.append(model.StoredBody(body_sha256=body_sha256, content=made.body))
        if len(bodies) == _BATCH:
            log.add(payloads, bodies)
            payloads, bodies = [], []
    release = model.ReleaseRecord(
        race_id="race-1", batch_sha256="77", problems=tuple(released.values()), salt="99" * 32
    )
    log.add([*payloads, release], bodies)
    return export(log, folder, signer=log.signer, now_ms=START_MS, **{"formats": ("jsonl", "parquet")} | fields)


class _DayLog(ExportLog):
    """A log that finds verdicts by their body: a day has tens of thousands."""

    def __init__(self) -> None:
        super().__init__()
        self._verdicts: dict[str, list[model.SignedRecord]] = {}

    async def append(self, records: Sequence[model.SignedRecord], bodies: Sequence[model.BodyFrame] = (), finish=None):
        for record in records:
            payload = decode_content(record.content).payload
            if isinstance(payload, model.VerdictRecord):
                self._verdicts.setdefault(payload.verdict.body_sha256, []).append(record)
        return await super().append(records, bodies)

    async def verdicts_on(self, names: Sequence[str], validator=None) -> list[model.SignedRecord]:
        return [record for name in names for record in self._verdicts.get(name, ())]


def read_traces(export: Export) -> Iterator[Trace | Quarantined]:
    """The trajectories of an export in one process, shard after shard."""
    for shard in export_shards(export):
        yield from shard()
