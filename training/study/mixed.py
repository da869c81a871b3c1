"""The arm `mixed`: agentic rows and lifted ones, by the plan's share, as many together as any other arm has.

Two corpora side by side, each with its own rules and lineage, and the leak guard on in both. A lifted row is
taken whatever its coefficient, which judges what the model said in the run and not the thoughts written since. Where
there are too few lifted rows for the share, agentic ones take their place: the arm's size stays, and the page counts
the lifted ones. Thoughts are the scripted writer's, unless `thoughts` holds those of `arena corpus rewrite` over the
study's export already.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from training.agents import distilled_prompt
from training.corpus.appraisal import Task
from training.corpus.building import Origin, Sources, arms_of, filter_sources, without, write_filtered
from training.corpus.gates import codes_of, gates
from training.corpus.leak_guard import Guard
from training.corpus.model import ExecutedTrace, RejectCode, Rules, Trace
from training.rewriting.model import RewriteRules
from training.rewriting.results import THOUGHTS, with_calls, with_rewrites, write_results
from training.rewriting.scripted import WRITER, ScriptedWriter
from training.rewriting.writing import report, rewrite_all
from training.study.plan import MIXED_PARTS
from training.trac.answers import Answers
from training.trac.asking import Asker


def build_mixed(
    sources: Sources, task: Task, rows: int, agentic_e4: int, guard: Guard, origin: Origin, out: Path, thoughts: Path
) -> None:
    """Write `out`/agentic and `out`/lifted, `rows` together, by the rules of `task`'s only arm; thoughts to `thoughts`
    where there are none.

    Raises ArenaError V2147 where nothing could be lifted, V2149 for thoughts that can't be read.
    """
    (rules,) = task.arms
    lifted_rules = without(rules, ("coefficient",))
    if not (thoughts / THOUGHTS).exists():
        write_thoughts(sources, lifted_rules, guard, thoughts)
    lifted = with_rewrites(sources, [thoughts], distilled_prompt(), is_alone=True)
    wanted = rows - rows * agentic_e4 // 10_000
    found = filter_sources(lifted, task, arms_of(lifted_rules, ()), guard).funnels[0].kept
    taken = min(wanted, found) if wanted else 0
    parts = ((MIXED_PARTS[0], sources, rules, rows - taken), (MIXED_PARTS[1], lifted, lifted_rules, taken or wanted))
    for name, read, own, size in parts:
        if size:
            arms = arms_of(msgspec.structs.replace(own, rows=size), ())
            write_filtered(filter_sources(read, task, arms, guard), out / name, guard, origin)


def write_thoughts(sources: Sources, rules: Rules, guard: Guard, folder: Path) -> None:
    """The scripted writer's thoughts for every run that these rules would take."""
    asker, every, asked = Asker(ScriptedWriter(), Answers(folder / "answers"), {}), gates(), RewriteRules()

    def would_reject(trace: Trace) -> Sequence[RejectCode]:
        return sorted({*codes_of(trace, rules, every), *guard(trace)})

    traces = (row for shard in sources.shards for row in with_calls(shard)() if isinstance(row, ExecutedTrace))
    made = list(rewrite_all(traces, WRITER, asked, asker, would_reject))
    write_results(folder, made, report(made, WRITER, asked, asker, sources.hashes))
