"""Traces from wherever a person has them: a local run, a body, a folder of bodies, an export, a node's store.

A node's store is read under the release rule (`arena.visibility`): whoever runs the node sees everything, and what is
made for others holds only what they may see.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from arena.bank.batch import Explain, explain_nothing
from arena.chain.keys import verify
from arena.export.agents import AgentRow
from arena.export.assembly import releases_in
from arena.export.files import AGENTS, LOG, MANIFEST, read_rows, read_scrubbed
from arena.export.model import LogRow
from arena.export.selection import releases_of
from arena.records.body import decode_body, decode_content
from arena.records.inspection import inspect
from arena.records.model import EvaluationRecord, RecordContent, ReleaseRecord, SignedRecord, VerdictRecord, entry_of
from arena.view.reading import Field, TraceView, chain_fact, view_evaluation, view_trace
from arena.visibility.rule import Thing, Viewer, embargoed_races, may_see, standing_of
from harness.emission.attribution import EMISSION, emitters_of
from harness.emission.call_reader import CallReader
from harness.tools.registry import PROFILES, profile_schemas
from harness.trace import EvaluationBody, ToolCall
from judge.verdict import UnscoredVerdict, Verdict
from neurons.cli.options import find_record, logs_of, read_or_none
from neurons.practice.run import LocalRun, read_run
from neurons.race.sentences import names_of
from problems.model import Pool

if TYPE_CHECKING:
    from arena.store.postgres import PostgresStore


class FoundTraces(NamedTuple):
    """What was found, each view with its body, and why the rest is not shown: a line for each reason."""

    title: str
    traces: tuple[tuple[TraceView, EvaluationBody], ...]
    withheld: tuple[str, ...] = ()


class ReadRules(NamedTuple):
    """Who looks, at what pools that were named, when, and at how many traces at most. `explain` says what problems
    asked; it is asked for those that `viewer` may see."""

    viewer: Viewer
    pools: tuple[Pool, ...]
    now_ms: int
    most: int
    validator: str = ""
    explain: Explain = explain_nothing


def traces_of_path(path: Path, most: int) -> FoundTraces:
    """Those of an export, of a run or a body in a file, or of a folder of these. Raises ArenaError V2050,
    msgspec.MsgspecError for another file, OSError."""
    if (path / MANIFEST).exists():
        return FoundTraces(str(path), tuple(itertools.islice(_exported(path), most)))
    if path.is_dir():
        files = sorted(path.glob("*.json"))[:most]
        return FoundTraces(str(path), tuple(trace for one in files for trace in traces_of_path(one, 1).traces))
    found = read_run(path.read_bytes())
    if not isinstance(found, LocalRun):
        return FoundTraces(str(path), ((view_trace(found), found),))
    done = [(row.evaluation, row.constraints) for row in found.rows if row.evaluation is not None]
    traces = tuple((view_evaluation(one, constraints), one.body) for one, constraints in done)
    failed = [(row.problem.problem_id, row.failure) for row in found.rows if row.failure]
    missing = tuple(f"{problem}: {failure.code} {failure.detail}" for problem, failure in failed)
    return FoundTraces(f"{found.agent} under policy {found.policy}", traces, missing)


async def traces_of_store(store: PostgresStore, which: str, rules: ReadRules) -> FoundTraces | None:
    """Those of a race, or the one that a number or the beginning of an id names; None where there is nothing.

    What `rules.viewer` may not see yet is left out and named with its reason.
    """
    found: list[tuple[SignedRecord, EvaluationRecord]] = []
    for name in await logs_of(store, rules.validator):
        async for record in store.records(name, kinds=("evaluation",), race_id=which):
            content = read_or_none(record)
            if isinstance(content, RecordContent) and isinstance(content.payload, EvaluationRecord):
                found.append((record, content.payload))
            if len(found) >= rules.most:
                break
    if not found:
        one = await find_record(store, which, rules.validator)
        if one is None or not isinstance(one[1], RecordContent) or not isinstance(one[1].payload, EvaluationRecord):
            return None
        found = [(one[0], one[1].payload)]
    names = names_of(await store.submissions())
    logs = {record.validator for record, _ in found}
    releases = {name: {one.race_id: one async for _, one in releases_in(store, name)} for name in logs}
    points = {name: await store.checkpoints(name) for name in logs}
    traces, withheld = list[tuple[TraceView, EvaluationBody]](), Counter[str]()
    for record, evaluation in found:
        name = record.validator
        if reason := withheld_reason(evaluation, releases[name], rules):
            withheld[reason] += 1
            continue
        stored = await store.body(evaluation.body_sha256, name)
        if stored is None:
            withheld["its body is not stored"] += 1
            continue
        body = decode_body(stored.content)
        judging = [decode_content(one.content).payload for one in await store.verdicts_on([stored.body_sha256], name)]
        is_problem_seen = not withheld_reason(evaluation, releases[name], rules, "problem")
        asked = rules.explain(evaluation, body.catalogue_sha256).constraints if is_problem_seen else ()
        view = view_trace(
            body,
            name=str(record.seq),
            outcome=evaluation.outcome,
            verdicts=[one.verdict for one in judging if isinstance(one, VerdictRecord)],
            constraints=asked,
            facts=(*record_facts(evaluation, names), *(attribution_facts(body) if len(found) == 1 else ())),
            proof=(*signature_facts(record), chain_fact(record.seq, points[name])),
        )
        traces.append((view, body))
    return FoundTraces(which, tuple(traces), tuple(f"{count} not shown: {why}" for why, count in withheld.items()))


def withheld_reason(
    evaluation: EvaluationRecord, releases: Mapping[str, ReleaseRecord], rules: ReadRules, thing: Thing = "trace"
) -> str:
    """Why `rules.viewer` may not see this trace, or another thing of its problem, now; "" where it may."""
    embargoed = embargoed_races(releases, rules.now_ms)
    moment, pool = standing_of(evaluation.context, releases_of(releases), embargoed)
    return may_see(rules.viewer, thing, moment, pool=pool, pools=rules.pools).reason


def record_facts(evaluation: EvaluationRecord, names: Mapping[str, str]) -> tuple[Field, ...]:
    """Whose trace a record holds, and where it belongs. `names`: of agent versions, where they are known."""
    context, subject = evaluation.context, evaluation.subject
    name = "control" if not subject.miner_hotkey else names.get(subject.agent_version_id, "").split(" ")[0]
    return (
        ("stage", context.stage + (f", {context.race_id}" if context.race_id else "")),
        ("version", f"{name} {subject.agent_version_id}".strip()),
        ("miner", subject.miner_hotkey or "nobody: a control agent"),
        ("policy", evaluation.conditions.policy_sha256),
        ("jail", evaluation.conditions.sandbox.name),
        ("attempt", evaluation.attempt_id),
    )


def signature_facts(record: SignedRecord | LogRow) -> tuple[Field, ...]:
    """A record's place in its log, and whether hash and signature hold."""
    content = None if record.content is None else bytes(record.content)
    faults = inspect(entry_of(record, content), verify).faults
    wrong = [f"{rule}: {why}" for rule, why in faults if rule != "body"]
    holds = "; ".join(wrong) if wrong else f"holds: signed by {record.validator}"
    return (("record", f"{record.seq} of {record.validator}"), ("signature", holds), ("content", record.content_sha256))


def _exported(folder: Path) -> Iterator[tuple[TraceView, EvaluationBody]]:
    """The trajectories of an export, as its views have them."""
    shards = sorted((folder / LOG).glob("*.jsonl.zst"))
    agents = [msgspec.json.decode(line, type=AgentRow) for line in (folder / AGENTS).read_bytes().splitlines()]
    names = {row.agent_version_id: row.name or "" for row in agents}
    verdicts: dict[str, Verdict | UnscoredVerdict] = {}
    for row in (row for path in shards for row in read_rows(path)):
        payload = None if row.content is None else decode_content(bytes(row.content)).payload
        if isinstance(payload, VerdictRecord):
            verdicts.setdefault(payload.verdict.body_sha256, payload.verdict)
    for number, path in enumerate(shards):
        scrubbed = read_scrubbed(folder, number)
        for row in read_rows(path):
            if trajectory := scrubbed.get(row.seq):
                evaluation, body, verdict = trajectory.evaluation, trajectory.body, trajectory.verdict
            elif row.content is not None and row.body is not None:
                payload = decode_content(bytes(row.content)).payload
                assert isinstance(payload, EvaluationRecord)  # no other record has a body
                evaluation, body = payload, decode_body(bytes(row.body))
                verdict = verdicts.get(evaluation.body_sha256)
            else:
                continue
            view = view_trace(
                body,
                name=str(row.seq),
                outcome=evaluation.outcome,
                verdicts=() if verdict is None else (verdict,),
                facts=record_facts(evaluation, names),
                proof=signature_facts(row),
            )
            yield view, body


def attribution_facts(body: EvaluationBody) -> tuple[Field, ...]:
    """Who wrote the calls, worked out again from the body; none for a profile or a rule that this release lacks."""
    if body.tool_profile not in PROFILES or body.emission != EMISSION:
        return ()
    recorded = tuple(event.emitter for event in body.events if isinstance(event, ToolCall))
    again = emitters_of(body, CallReader(profile_schemas(body.tool_profile)))
    differ = sum(one != two for one, two in zip(recorded, again, strict=True))
    said = f"{differ} of {len(again)} calls come out otherwise" if differ else "as recorded"
    return ((f"who wrote the calls, worked out again by {EMISSION}", said),)
