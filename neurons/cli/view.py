"""`arena view`: traces in the terminal, and any record of the log. They come from wherever a person has them: a local
run, a body, an export, a node's store.
"""

from __future__ import annotations

import itertools
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from arena.bank.batch import Explain
from arena.chain.keys import verify
from arena.export.assembly import counted_rubric
from arena.export.files import LOG, MANIFEST, read_manifest, read_rows, read_scrubbed
from arena.export.model import LogRow
from arena.policy import Policy
from arena.records.body import decode_body, decode_content
from arena.records.inspection import inspect
from arena.records.model import EvaluationRecord, RecordContent, SignedRecord, VerdictRecord, entry_of
from foundation.errors import counted, printable
from harness.trace import EvaluationBody
from judge.verdict import UnscoredVerdict, Verdict, counted_verdict
from neurons.cli import options
from neurons.cli.presenter import EXIT_FAILED, refuse, show
from neurons.cli.records import record_row
from neurons.race.sentences import names_of

if TYPE_CHECKING:
    from arena.store.postgres import PostgresStore
    from arena.view.reading import Field, TraceView


TRACES_MAX = 500  # read at most
_WIDEST = 100  # columns of a trace
_STYLES: dict[str, dict[str, Any]] = {
    "heading": {"bold": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "soft": {"dim": True},
    "call": {"fg": "cyan"},
    "mark": {"fg": "yellow"},
    "plain": {},
}


class FoundTraces(NamedTuple):
    """What was found, each view with its body, and why the rest is not shown: a line for each reason."""

    title: str
    traces: tuple[tuple[TraceView, EvaluationBody], ...]
    missing: tuple[str, ...] = ()


def traces_of_file(path: Path) -> FoundTraces:
    """Those of a run, or of a body. Raises msgspec.MsgspecError for another file, OSError."""
    from arena.view.reading import view_evaluation, view_trace
    from neurons.practice.run import LocalRun, read_run

    found = read_run(path.read_bytes())
    if not isinstance(found, LocalRun):
        return FoundTraces(str(path), ((view_trace(found), found),))
    done = [(row.evaluation, row.constraints) for row in found.rows if row.evaluation is not None]
    traces = tuple((view_evaluation(one, constraints), one.body) for one, constraints in done)
    failed = [(row.problem.problem_id, row.failure) for row in found.rows if row.failure]
    missing = tuple(f"{problem}: {failure.code} {failure.detail}" for problem, failure in failed)
    return FoundTraces(f"{found.agent} under policy {found.policy}", traces, missing)


async def traces_of_store(
    store: PostgresStore, which: str, explain: Explain, validator: str = ""
) -> FoundTraces | None:
    """Those of a race, or the one that a number or the beginning of an id names; None where there is nothing. `explain`
    says what problems asked."""
    from arena.export.agents import settlements_in
    from arena.view.reading import TraceView, chain_fact

    stated, found = await options.logs_of(store, validator), list[tuple[SignedRecord, EvaluationRecord]]()
    for log in stated:
        async for record in store.records(log, kinds=("evaluation",), race_id=which or None):
            content = options.read_or_none(record)
            if isinstance(content, RecordContent) and isinstance(content.payload, EvaluationRecord):
                found.append((record, content.payload))
    if not found:
        one = await options.find_record(store, which, validator)
        if one is None or not isinstance(one[1], RecordContent) or not isinstance(one[1].payload, EvaluationRecord):
            return None
        found = [(one[0], one[1].payload)]
    names = names_of(await store.submissions())
    policies = {each.policy_sha256: each for log in stated async for *_, each in settlements_in(store, log)}
    logs = {record.validator for record, _ in found}
    points = {name: await store.checkpoints(name) for name in logs}
    traces, missing = list[tuple[TraceView, EvaluationBody]](), list[str]()
    for record, evaluation in found[:TRACES_MAX]:
        stored = await store.body(evaluation.body_sha256, record.validator)
        if stored is None:
            missing.append(f"record {record.seq}: its body is not stored")
            continue
        judged = await store.verdicts_on([evaluation.body_sha256], record.validator)
        on_body = [decode_content(one.content).payload for one in judged]
        body, verdicts = decode_body(stored.content), [one.verdict for one in on_body if isinstance(one, VerdictRecord)]
        found_here, chain = explain(evaluation, body.catalogue_sha256), chain_fact(record.seq, points[record.validator])
        known = {"rubric": counted_rubric(evaluation, policies), "constraints": found_here.constraints}
        traces.append((_view_record(record, evaluation, body, verdicts, names, chain, **known), body))
    return FoundTraces(which, tuple(traces), tuple(missing))


def traces_of_export(folder: Path) -> Iterator[tuple[TraceView, EvaluationBody]]:
    """The trajectories of an export, as its views have them. Raises ArenaError V2050 for a damaged file."""
    from arena.export.agents import stated_supplement

    shards = sorted((folder / LOG).glob("*.jsonl.zst"))
    stated = stated_supplement(folder, read_manifest(folder))
    policies = {name: msgspec.json.decode(text, type=Policy) for name, text in stated.policies.items()}
    verdicts = defaultdict[str, list[Verdict | UnscoredVerdict]](list)
    for row in (row for path in shards for row in read_rows(path)):
        payload = None if row.content is None else decode_content(bytes(row.content)).payload
        if isinstance(payload, VerdictRecord):
            verdicts[payload.verdict.body_sha256].append(payload.verdict)
    for number, path in enumerate(shards):
        scrubbed = read_scrubbed(folder, number)
        for row in read_rows(path):
            if trajectory := scrubbed.get(row.seq):
                evaluation, body, verdict = trajectory.evaluation, trajectory.body, trajectory.verdict
            elif row.content is not None and row.body is not None:
                payload = decode_content(bytes(row.content)).payload
                assert isinstance(payload, EvaluationRecord)  # no other record has a body
                evaluation, body = payload, decode_body(bytes(row.body))
                verdict = counted_verdict(verdicts[evaluation.body_sha256], counted_rubric(evaluation, policies))
            else:
                continue
            yield _view_record(row, evaluation, body, () if verdict is None else (verdict,), stated.names), body


def _view_record(
    record: SignedRecord | LogRow,
    evaluation: EvaluationRecord,
    body: EvaluationBody,
    verdicts: Sequence[Verdict | UnscoredVerdict],
    names: Mapping[str, str],
    *proof: Field,
    **known: Any,
) -> TraceView:
    """The view of a record's trace: also whose it is and where it belongs, its place in its log, and whether hash and
    signature hold. `names`: of agent versions, where they are known; `known`: more that `view_trace` takes."""
    from arena.view.reading import view_trace

    context, subject = evaluation.context, evaluation.subject
    name = "control" if not subject.miner_hotkey else names.get(subject.agent_version_id, "").split(" ")[0]
    facts = (
        ("stage", context.stage + (f", {context.race_id}" if context.race_id else "")),
        ("version", f"{name} {subject.agent_version_id}".strip()),
        ("miner", subject.miner_hotkey or "nobody: a control agent"),
        ("policy", evaluation.conditions.policy_sha256),
        ("jail", evaluation.conditions.sandbox.name),
        ("attempt", evaluation.attempt_id),
    )
    content = None if record.content is None else bytes(record.content)
    wrong = [f"{rule}: {why}" for rule, why in inspect(entry_of(record, content), verify).faults if rule != "body"]
    signature = "; ".join(wrong) if wrong else f"holds: signed by {record.validator}"
    place = ("record", f"{record.seq} of {record.validator}")
    return view_trace(
        body,
        name=str(record.seq),
        outcome=evaluation.outcome,
        verdicts=verdicts,
        facts=facts,
        proof=(place, ("signature", signature), ("content", record.content_sha256), *proof),
        **known,
    )


app = typer.Typer()


@options.command(app)
def view(
    store: options.StoreFlags,
    target: Annotated[
        str,
        typer.Argument(
            metavar="[RECORD|BODY|RUN|RACE|EXPORT]",
            help="Record number or id, race id, body or run file, or export. Default: the last run.",
            show_default=False,
        ),
    ] = "",
    trace: Annotated[str, typer.Option(help="Of several, the one with this problem id or number.")] = "",
    is_whole: Annotated[bool, typer.Option("--whole", help="Fold no result and cut no text.")] = False,
    is_as_judged: Annotated[bool, typer.Option("--as-judged", help="Print only what a judge is shown.")] = False,
    validator: options.ValidatorOption = "",
    catalogue: options.CatalogueOption = None,
) -> None:
    """Look at traces: what happened, what was asked, what failed.

    arena view
    arena view --trace 2
    arena view race-000014
    arena view body.json --whole

    Shows each constraint with what was found, scores by product and axis, the judge's sentences with their quotes, each
    turn with who wrote its calls, and, for a record, its signature and chain state. A record without a trace is shown
    field by field. Requests and products are read from the state folder; --catalogue names another catalogue. Exit code
    1 when nothing is there.
    """
    from judge.render import render

    try:
        found = _found(target, validator, catalogue, store)
    except msgspec.MsgspecError as error:
        raise typer.BadParameter(f"{target} is neither a run nor a body: {error}", param_hint="TARGET") from error
    if found is None:
        known = store.run(lambda logs: options.find_record(logs, target, validator))
        if known is None:
            raise refuse(options.MESSAGE_NOT_FOUND.format(which=target), EXIT_FAILED)
        row = record_row(*known)
        show(row, [printable(msgspec.json.format(msgspec.json.encode(row), indent=2).decode())])
        return
    kept = [one for one in found.traces if trace == one[0].name or one[1].problem_id.startswith(trace)]
    if not kept and trace.isdecimal():  # its place in the list
        kept = list(found.traces[int(trace) - 1 : int(trace)])
    found = found._replace(traces=tuple(kept))
    for line in found.missing:
        typer.echo(line, err=True)
    if not found.traces:
        of_one = f" with --trace {trace}" if trace else ""
        raise refuse(f"nothing to show of {target or 'the last run'}{of_one}", EXIT_FAILED)
    lines = ["\n\n".join(render(body).text for _, body in found.traces)] if is_as_judged else _lines(found, is_whole)
    show([view for view, _ in found.traces], lines)


def _found(target: str, validator: str, catalogue: Path | None, store: options.StoreFlags) -> FoundTraces | None:
    """The traces that a target names: a file or export here, else a record or race of a store; None for a record
    without one."""
    from neurons.practice.run import default_cache_dir

    path = Path(target) if target else default_cache_dir() / "last-run.json"
    if not target and not path.exists():
        raise refuse("there is no run yet; next: arena run AGENT.py", EXIT_FAILED)
    if (path / MANIFEST).exists():
        return FoundTraces(str(path), tuple(itertools.islice(traces_of_export(path), TRACES_MAX)))
    if path.is_file():
        return traces_of_file(path)
    from neurons.race.log import open_explainer

    explain = open_explainer(store.folder, catalogue).explain
    return store.run(lambda logs: traces_of_store(logs, target, explain, validator))


def _lines(found: FoundTraces, is_whole: bool) -> Iterator[str]:
    """One trace whole; of several a line each, and how to see one."""
    from arena.view.page import trace_lines

    width = min(_WIDEST, shutil.get_terminal_size((80, 24)).columns)
    if len(found.traces) == 1:
        for line in trace_lines(found.traces[0][0], width, is_whole=is_whole):
            yield typer.style(line.text, **_STYLES[line.style])
        return
    yield f"{found.title}: {counted(len(found.traces), 'trace')}"
    longest = max(len(view.name) for view, _ in found.traces)
    for view, body in found.traces:
        version = dict(view.facts).get("version", "")  # of a record: name and hash; a run is of one agent
        whose = f"{body.problem_id[:6]} {version[:10]:<10} " if version else ""
        yield f"{view.name:<{longest}} {whose}{view.result}"[:width]
    yield f"\none of them: add --trace {found.traces[0][0].name}"
