"""What a checkpoint has learnt from, and whether a set of problems touches it.

Every stage back to the first is asked: its problem files or the pool it was dealt, its corpora and the episodes it
took over. A set is held against problem ids and against answers (products and title classes), which paraphrase does not
change. What can't be read any more, and a corpus or pool that is another one than was learnt, is named, never taken for
clean. A base is known to what starts from it by the hash of its weights: what a base learnt is not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from foundation.canonical import content_hash, file_sha256
from foundation.errors import ArenaError
from problems.model import Problem
from problems.pools.clusters import answer_marks
from problems.suites.formats import read_problems
from training.corpus.corpus_files import read_lineage, read_rows
from training.corpus.leak_guard import answered
from training.guards import GuardStopError
from training.recipe import parse_recipe, samples_unnamed
from training.rollouts.episode_file import EpisodeFile
from training.stages.rejection import EPISODES
from training.stages.run import SAMPLED, lineage_chain


class Learnt(msgspec.Struct, frozen=True, kw_only=True):
    """What stages learnt from: problem ids, marks of answers (`answer_marks`), and how much of it could be read."""

    problem_ids: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    read: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    def describe(self) -> str:
        """One line for a report."""
        missing = f"; could not be read: {', '.join(self.unread)}" if self.unread else ""
        return f"contamination check: no overlap with the {len(self.problem_ids)} training problems{missing}"


def learnt_by(run: Path) -> Learnt:
    """What a finished run and the runs it comes from learnt from. Raises ArenaError V2124 where a run is missing,
    V2166 for a broken chain."""
    ids: set[str] = set()
    marks: set[str] = set()
    read: list[str] = []
    unread: list[str] = []
    for folder, _, lineage in lineage_chain(run):
        recipe = parse_recipe(lineage.recipe, str(folder))
        data = recipe.data
        # a study's base names its transcripts by a hash too, which are no corpus
        corpora = dict(zip(data.corpus, lineage.corpus_sha256s, strict=False))
        sources = [("problems", data.problems)] if data.problems else []
        sources += [("corpus", name) for name in data.corpus] + [("episodes", name) for name in data.rollouts]
        if SAMPLED in lineage.problem_files:
            sources.append(("problems", str(folder / SAMPLED)))
        elif samples_unnamed(recipe):
            unread.append(f"the problems that {folder.name} was dealt (an older lineage does not name them)")
        for kind, name in sources:
            try:
                if kind == "corpus" and content_hash(read_lineage(Path(name))) != corpora.get(name):
                    unread.append(f"{name} (another corpus stands there now)")
                    continue
                found_ids, found_marks = set[str](), set[str]()
                if name == str(folder / SAMPLED) and file_sha256(Path(name)) != lineage.problem_files[SAMPLED]:
                    unread.append(f"{name} (other problems stand there now)")
                    continue
                if kind == "problems":
                    problems = read_problems(Path(name).read_bytes().splitlines())
                    found_ids = {problem.problem_id for problem in problems}
                    found_marks = {mark for problem in problems for mark in answer_marks(problem)}
                elif kind == "corpus":
                    for row in read_rows(Path(name)):
                        found_ids |= {row.trace.facts.problem_id or ""} - {""}
                        found_marks |= {f"id {product}" for product in answered(row.trace)}
                else:
                    path = Path(name) / EPISODES
                    if not path.exists():
                        raise FileNotFoundError(path)
                    found_ids = {line.result.problem_id for line in EpisodeFile(path).lines()}
            except (ArenaError, OSError):
                unread.append(name)
                continue
            ids |= found_ids
            marks |= found_marks
            read.append(name)
    return Learnt(
        problem_ids=frozenset(ids),
        marks=frozenset(marks),
        read=tuple(dict.fromkeys(read)),
        unread=tuple(dict.fromkeys(unread)),
    )


def require_unseen(problems: Sequence[Problem], learnt: Learnt) -> None:
    """No problem of the set, and no answer of one, was learnt. Raises GuardStopError with the first that was."""
    for problem in problems:
        if problem.problem_id in learnt.problem_ids:
            raise GuardStopError("contamination", f"problem {problem.problem_id} was trained on")
        shared = answer_marks(problem) & learnt.marks
        if shared:
            raise GuardStopError(
                "contamination", f"problem {problem.problem_id}: an answer was trained on, {min(shared)}"
            )
