"""From sources to corpora: read once, one size for a comparison, and nothing written before it is sure to be whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.chain.keys import verify
from foundation.errors import ArenaError
from foundation.executors import executor_of
from training.corpus.building import (
    FULL,
    Filtered,
    arms_of,
    filter_sources,
    open_sources,
    read_rules,
    write_filtered,
)
from training.corpus.corpus_files import read_rows
from training.corpus.leak_guard import Guard
from training.corpus.model import Rules
from training.corpus.selection import Task

ORIGIN = {"partition_sha256": "cd" * 32, "code_commit": "f6"}
LOOSE = Rules(coefficient_e4_min=5_000)


def filtered(day: Path, rules: Rules = LOOSE, names: tuple[str, ...] = (), workers: int = 0) -> Filtered:
    sources = open_sources([day], [], verify)
    return filter_sources(sources, Task(arms=(rules,)), arms_of(rules, names), Guard(), executor=executor_of(workers))


def code_of(caught: pytest.ExceptionInfo[ArenaError]) -> str:
    return caught.value.failure.code


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("coefficient = 1", "unknown field `coefficient`.*rules are coefficient_e4_min"),
        ("coefficient_e4_min = 'high'", "coefficient_e4_min"),
        ("coefficient_e4_min = 10001", "<= 10000"),
        ("per_problem_max = 0", ">= 1"),
        ('off = ["leak"]', "cannot be switched off"),
        ('off = ["lek"]', "off"),
        ("= 3", "line 1"),
    ],
)
def test_a_rule_that_cannot_be_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ArenaError, match=said) as caught:
        read_rules(tmp_path / "a.toml")
    assert code_of(caught) == "V2120"


def test_an_arm_by_tokens_has_as_many_as_the_first_and_never_more(day: Path, tmp_path: Path) -> None:
    def tokens(folder: str) -> int:
        return sum(row.tokens or 0 for row in read_rows(Path(folder)))

    found = filtered(day, LOOSE, names=("no_structural_filter", "no_structural_filter_by_tokens"))
    built = {one.name: one for one in write_filtered(found, tmp_path / "study", Guard(), **ORIGIN)}
    wanted, by_tokens = tokens(built[FULL].folder), built["no_structural_filter_by_tokens"]
    longest = max(row.tokens or 0 for one in built.values() for row in read_rows(Path(one.folder)))
    assert wanted - longest < tokens(by_tokens.folder) <= wanted
    assert by_tokens.lineage.rules.tokens == wanted and by_tokens.lineage.rules.rows is None
    assert built["no_structural_filter"].funnel.kept == built[FULL].funnel.kept


def test_an_arm_that_keeps_nothing_stops_all_of_them_before_a_byte(day: Path, tmp_path: Path) -> None:
    found = filtered(day, Rules(tokens_max=1), names=("no_tokens",))
    assert [one.kept > 0 for one in found.funnels] == [False, True]
    with pytest.raises(ArenaError, match="under full") as caught:
        write_filtered(found, tmp_path / "study", Guard(), **ORIGIN)
    assert code_of(caught) == "V2147"
    assert list(tmp_path.iterdir()) == []
